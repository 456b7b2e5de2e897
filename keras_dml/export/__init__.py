"""Exporting models to TensorFlow Serving, ONNX and LiteRT."""

from keras_dml.export._export_model import export_model
from keras_dml.export.gallery import Gallery
from keras_dml.export.versions import write_models_config

__all__ = ["Gallery", "export_model", "write_models_config"]
