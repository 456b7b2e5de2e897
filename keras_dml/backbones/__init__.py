"""Backbones by name, from a file, or any Keras model."""

from keras_dml.backbones import convert, splitting
from keras_dml.backbones.bn_inception import bn_inception
from keras_dml.backbones.get import get
from keras_dml.backbones.googlenet import googlenet
from keras_dml.backbones.preprocessing import with_preprocessing
from keras_dml.backbones.small_convnet import small_convnet
from keras_dml.backbones.torchvision_googlenet import torchvision_googlenet

__all__ = [
    "bn_inception",
    "convert",
    "get",
    "googlenet",
    "small_convnet",
    "splitting",
    "torchvision_googlenet",
    "with_preprocessing",
]
