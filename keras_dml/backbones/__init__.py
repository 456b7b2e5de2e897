"""Backbones by name, from a file, or any Keras model."""

from keras_dml.backbones.get import get
from keras_dml.backbones.small_convnet import small_convnet

__all__ = ["get", "small_convnet"]
