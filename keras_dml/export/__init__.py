"""Exporting models to TensorFlow Serving, ONNX, LiteRT and OpenVINO.

Open first: `_export_model`, the one function, then `served`, what a SavedModel
is made of, and `signatures`, how it searches. `files` decodes images in the
graph, `portable` writes the other formats, and `parity` compares every export
with its model before it is kept.
`quantized` writes networks in integers, and `cost` measures what that costs.

Imports: `evaluation` and below.
"""

from keras_dml.export._export_model import export_model
from keras_dml.export.cost import Cost, measure_cost
from keras_dml.export.gallery import Gallery

__all__ = [
    "Cost",
    "Gallery",
    "export_model",
    "measure_cost",
]
