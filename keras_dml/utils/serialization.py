"""Serialization: configs from constructors, and registration with Keras."""

import inspect
from collections.abc import Callable
from typing import Any, Self, TypeVar

import keras

from keras_dml.utils.types import Config

T = TypeVar("T")


def register(cls: T) -> T:
    """Registers a class or function as `keras_dml>Name` for saving."""
    decorate: Callable[[T], T] = keras.saving.register_keras_serializable(
        package="keras_dml"
    )
    return decorate(cls)


class Serializable:
    """Base of objects whose config is the arguments of their constructor.

    An object keeps every argument as the attribute of its name. Arguments
    may be what Keras serializes, and lists of that: layers, losses,
    initializers.
    """

    def get_config(self) -> Config:
        """Every constructor argument, read from the attribute of its name."""
        return {
            name: _serialize(getattr(self, name))
            for name in argument_names(type(self))
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(**_deserialized(cls, config))


class SerializableLayer(Serializable, keras.layers.Layer):
    """Base of layers: their arguments, and those of `keras.layers.Layer`."""

    def get_config(self) -> Config:
        config: Config = keras.layers.Layer.get_config(self)
        return {**config, **super().get_config()}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        # Keras restores its own arguments.
        layer: Self = super(Serializable, cls).from_config(
            _deserialized(cls, config)
        )
        return layer


def argument_names(cls: type[Serializable]) -> list[str]:
    """Names of the constructor arguments of a class and its bases."""
    names = []
    for base in cls.__mro__:
        if issubclass(base, Serializable) and "__init__" in vars(base):
            parameters = inspect.signature(base.__init__).parameters.values()
            names += [
                parameter.name
                for parameter in list(parameters)[1:]
                if parameter.kind != parameter.VAR_KEYWORD
            ]
    return list(dict.fromkeys(names))


def _deserialized(cls: type[Serializable], config: Config) -> Config:
    """A config whose arguments of `cls` are objects again."""
    names = argument_names(cls)
    return {
        name: _deserialize(value) if name in names else value
        for name, value in config.items()
    }


def _serialize(value: Any) -> Any:
    if isinstance(value, list | tuple):
        values = [_serialize(item) for item in value]
        return tuple(values) if isinstance(value, tuple) else values
    config = keras.saving.serialize_keras_object(value)
    if isinstance(value, keras.layers.Layer):
        # Its owner builds it. Keras would do so while it is read, outside
        # the owner, whose name its variables' paths would lack.
        config.pop("build_config", None)
    return config


def _deserialize(value: Any) -> Any:
    if isinstance(value, list | tuple):
        values = [_deserialize(item) for item in value]
        return tuple(values) if isinstance(value, tuple) else values
    if isinstance(value, dict) and "class_name" in value:
        return keras.saving.deserialize_keras_object(value)
    return value
