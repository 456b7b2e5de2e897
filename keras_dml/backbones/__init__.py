"""Backbones by name, from a file, or any Keras model."""

from keras_dml.backbones import convert, splitting
from keras_dml.backbones._bn_inception import bn_inception
from keras_dml.backbones._get import get
from keras_dml.backbones._googlenet import googlenet
from keras_dml.backbones._small_convnet import small_convnet
from keras_dml.backbones._torchvision_googlenet import torchvision_googlenet
from keras_dml.backbones.preprocessing import with_preprocessing

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
