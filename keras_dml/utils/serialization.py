"""Registration with Keras, so that saved models find these classes."""

from collections.abc import Callable
from typing import TypeVar

import keras

from keras_dml.utils.types import Config

T = TypeVar("T")


def register(cls: T) -> T:
    """Registers a class or function as `keras_dml>Name` for saving."""
    decorate: Callable[[T], T] = keras.saving.register_keras_serializable(
        package="keras_dml"
    )
    return decorate(cls)


def serialized(layer: keras.layers.Layer) -> Config:
    """A layer's config, to be built again by the layer that owns it.

    Keras would build it while it is read, outside its owner, and then its
    variables' paths would lack the owner's name.
    """
    config: Config = keras.saving.serialize_keras_object(layer)
    config.pop("build_config", None)
    return config
