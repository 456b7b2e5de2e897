"""Exporting models to TensorFlow Serving, ONNX and LiteRT.

Open first: `_export_model`, the one function, then `served`, what a SavedModel
is made of, and `signatures`, what it finds. `files` decodes images in the
graph, `neighbors` searches a gallery there exactly, `portable` writes ONNX and
LiteRT, and `parity` compares every export with its model before it is kept.

Imports: `evaluation` and below.
"""

from keras_dml.export._export_model import export_model
from keras_dml.export.gallery import Gallery
from keras_dml.export.versions import write_models_config

__all__ = ["Gallery", "export_model", "write_models_config"]
