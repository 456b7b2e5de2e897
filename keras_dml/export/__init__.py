"""Exporting models to TensorFlow Serving, ONNX, LiteRT and OpenVINO.

Open first: `_export_model`, the one function, then `served`, which writes a
SavedModel and compares it with the model, and `gallery`, which it searches.
`files` decodes images in the graph, `portable` writes the other formats, and
`int8` quantizes networks.

Imports: `evaluation` and below.
"""

from keras_dml.export._export_model import export_model
from keras_dml.export.gallery import Gallery

__all__ = [
    "Gallery",
    "export_model",
]
