"""Serialization: configs from constructors, and registration with Keras."""

import inspect
import re
from collections.abc import Callable, Container, Mapping
from typing import Any, Generic, Self, TypeVar

import keras

from keras_dml.utils.arguments import Checked
from keras_dml.utils.registry import Entry, Registry, check_known
from keras_dml.utils.types import Config

T = TypeVar("T")


def register(cls: T) -> T:
    """Registers a class or function as `keras_dml>Name` for saving."""
    decorate: Callable[[T], T] = keras.saving.register_keras_serializable(
        package="keras_dml"
    )
    return decorate(cls)


class Serializable(Checked):
    """Base of objects whose config is the arguments of their constructor.

    An object keeps every argument as the attribute of its name. Arguments
    may be what Keras serializes, and lists of that: layers, losses,
    initializers. Those whose types are ranges or choices are checked.
    """

    def get_config(self) -> Config:
        """Every constructor argument, read from the attribute of its name."""
        return self.serialized_arguments()

    def serialized_arguments(self, without: Container[str] = ()) -> Config:
        """The config, without some of the arguments."""
        return {
            name: _serialize(getattr(self, name))
            for name in parameters_of(type(self))
            if name not in without
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(**_deserialize_arguments(cls, config))


class SerializableLayer(Serializable, keras.layers.Layer):
    """Base of layers: their arguments, and those of `keras.layers.Layer`."""

    def get_config(self) -> Config:
        config: Config = keras.layers.Layer.get_config(self)
        return {**config, **super().get_config()}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        # Keras restores its own arguments.
        layer: Self = super(Serializable, cls).from_config(
            _deserialize_arguments(cls, config)
        )
        return layer


def parameters_of(cls: type[Serializable]) -> dict[str, inspect.Parameter]:
    """The constructor arguments of a class, and of its bases, by name.

    A constructor without `**kwargs` takes none of its bases'.
    """
    parameters: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if issubclass(base, Serializable) and "__init__" in vars(base):
            _, *added = inspect.signature(base.__init__).parameters.values()
            for parameter in added:
                if parameter.kind != parameter.VAR_KEYWORD:
                    parameters.setdefault(parameter.name, parameter)
            if all(p.kind != p.VAR_KEYWORD for p in added):
                break
    return parameters


class SerializableRegistry(Registry[Any], Generic[T]):
    """A registry of classes whose objects have a config.

    Registering a class here registers it with Keras too, in the package
    that its module belongs to. `kind` is also the name of the argument that
    takes an object, and `base` the base of the classes.
    """

    def __init__(self, kind: str, base: type[T]) -> None:
        super().__init__(kind)
        self.base = base

    def add(self, entry: Entry[Any]) -> None:
        super().add(entry)
        cls, registered_name = entry.value, keras.saving.get_registered_name
        if inspect.isclass(cls) and registered_name(cls) == cls.__name__:
            package = cls.__module__.partition(".")[0]
            keras.saving.register_keras_serializable(package)(cls)

    def resolve(self, identifier: Any) -> T:
        """The object that `identifier` stands for, or a ValueError.

        It is such an object; a registered name; a dict with such a name and
        arguments, `{"name": "margin", "beta": 1.1}`; or an object as serialized
        by Keras. The error names the nearest known name or argument.
        """
        spec = identifier
        if isinstance(spec, dict) and "class_name" in spec:
            spec = deserialize_object(self.kind, spec)
        if isinstance(spec, self.base):
            return spec
        if isinstance(spec, str):
            spec = {"name": spec}
        if not isinstance(spec, dict) or "name" not in spec:
            raise ValueError(
                f"`{self.kind}` must be a {self.base.__name__}, its name, or "
                "a dict with its name and arguments. Received: "
                f"{self.kind}={identifier!r}. Use one of {tuple(self)}."
            )
        arguments = dict(spec)
        name = arguments.pop("name")
        make = self[name].value
        allowed = parameters_of(getattr(make, "func", make))  # of a partial
        for argument in arguments:
            check_known(f"argument of {self.kind} {name!r},", argument, allowed)
        missing = [
            parameter.name
            for parameter in allowed.values()
            if parameter.default is parameter.empty
            and parameter.name not in arguments
        ]
        if missing:
            auto = missing[0] == "num_classes"
            raise ValueError(
                f"`{missing[0]}` of {self.kind} {name!r} must be given. "
                f"Received: {self.kind}={identifier!r}. Use "
                f'{{"name": "{name}", "{missing[0]}": …}}.'
                + " In a recipe, `num_classes: auto` is how many training "
                "classes there are." * auto
            )
        instance: T = make(**arguments)
        return instance


def deserialize_object(argument: str, config: Mapping[str, Any]) -> Any:
    """The object that Keras makes of a config, or a ValueError.

    Keras imports no module that a config names.
    """
    try:
        return keras.saving.deserialize_keras_object(config)
    except Exception as error:  # Keras raises errors of any class.
        raise ValueError(
            f"`{argument}` must be the config of an object that Keras can "
            f"make. Received: {argument}={dict(config)!r}. Of a class of your "
            'own, import its module, or name it "package.module:name". Keras '
            f"reports: {str(error).partition('Full object config')[0].strip()}"
        ) from error


def deserialize_part(name: str, config: Any, custom_objects: Any) -> Any:
    """The part `name` of a model, from its config; an error without that."""
    try:
        return keras.saving.deserialize_keras_object(config, custom_objects)
    except TypeError as error:
        # Around one TypeError, Keras writes the config of the whole model.
        reason = str(error).rpartition("Exception encountered: ")[2]
        reason = reason.partition("Full object config")[0].strip()
        missing = re.search(r"Could not locate class '(\w+)'", reason)
        class_name = missing[1] if missing else "MyClass"
        raise ValueError(
            f"`{name}` of a saved model cannot be restored. Keras reports: "
            f"{reason} Or use keras.models.load_model(path, custom_objects="
            f'{{"{class_name}": {class_name}}}).'
        ) from error


def check_saveable(owner: str, argument: str, value: Any) -> None:
    """Raises `ValueError` for a value that Keras could save, but not load."""
    name = getattr(value, "__qualname__", type(value).__qualname__)
    try:
        if "<lambda>" in name:
            raise ValueError("A lambda has no name.")
        serialized = keras.saving.serialize_keras_object(value)
        keras.saving.deserialize_keras_object(serialized)
    except (TypeError, ValueError, AttributeError, ImportError) as error:
        raise ValueError(
            f"`{argument}` of {owner} must be registered with Keras, which "
            f"could not load the model otherwise. Received: {name!r}, which is "
            f"{value!r}. Use\n\n"
            "    @keras.saving.register_keras_serializable("
            'package="my_package")\n\n'
            "on its definition, which must not be a lambda."
        ) from error


def _deserialize_arguments(cls: type[Serializable], config: Config) -> Config:
    """Deserializes the arguments of `cls` in a config."""
    parameters = parameters_of(cls)
    return {
        name: _deserialize(value) if name in parameters else value
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
