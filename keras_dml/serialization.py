"""Registration with Keras, so that saved models find these classes."""

from collections.abc import Callable
from typing import TypeVar

import keras

T = TypeVar("T")


def register(cls: T) -> T:
    """Registers a class or function as `keras_dml>Name` for saving."""
    decorate: Callable[[T], T] = keras.saving.register_keras_serializable(
        package="keras_dml"
    )
    return decorate(cls)
