"""Backbones by name, from a file, or any Keras model.

Open first: `_get`, which resolves a name, then `presets` for other libraries;
`splitting` cuts a network below its trainable part, whose features `features`
computes once.

Imports: `model` and below.

Modules of this package that declare a network are found automatically and
exported as `keras_dml.backbones.<name>`.
"""

from typing import TYPE_CHECKING

from keras_dml.backbones import convert, splitting
from keras_dml.backbones._bn_inception import bn_inception
from keras_dml.backbones._features import features
from keras_dml.backbones._get import get
from keras_dml.backbones._googlenet import googlenet, torchvision_googlenet
from keras_dml.backbones._small import small_convnet
from keras_dml.backbones.networks import BACKBONES, network
from keras_dml.backbones.presets import with_preprocessing
from keras_dml.utils.registry import attributes, import_modules

import_modules(__name__)

if not TYPE_CHECKING:
    __getattr__ = attributes(__name__, BACKBONES)

__all__ = [
    "BACKBONES",
    "bn_inception",
    "convert",
    "features",
    "get",
    "googlenet",
    "network",
    "small_convnet",
    "splitting",
    "torchvision_googlenet",
    "with_preprocessing",
]
