"""Base classes of recipe sections, and keys made from signatures.

"auto", for `num_classes` and `class_counts` of a loss, is filled in once the
training set is known.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from types import GenericAlias, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import keras
from keras.src.backend.common import global_state
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    create_model,
    model_validator,
)

from keras_dml import losses

Fields: TypeAlias = dict[str, Any]
"""Name → (type, default), as `pydantic.create_model` takes them."""

S = TypeVar("S", bound=BaseModel)

MAX_EPOCHS = 10**6

_PLAIN = (bool, int, float, str, type(None), dict, Any)

_MANY_CLASSES = 10_000
"""So many that any useful `class_share` of them is at least two."""


def _as_text(value: Any) -> Any:
    """Replaces true and false by words, so that they are not numbers."""
    if isinstance(value, dict):
        return {key: _as_text(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(below) for below in value]
    return str(value).lower() if isinstance(value, bool) else value


def _are_numbers(annotation: Any) -> bool:
    """Whether a type has numbers only, alone or in containers."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        arguments = arguments[:1]
    elif get_origin(annotation) is dict:
        arguments = arguments[1:]
    if not arguments:
        return annotation in (int, float)
    types = [x for x in arguments if x not in (type(None), ...)]
    return all(map(_are_numbers, types))


class Section(BaseModel):
    """A section of a recipe; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _reject_boolean_numbers(cls, content: Any) -> Any:
        """Rejects true and false as numbers; Python takes them for 1, 0."""
        if not isinstance(content, dict):
            return content
        fields = cls.model_fields
        return {
            key: _as_text(value)
            if key in fields and _are_numbers(fields[key].annotation)
            else value
            for key, value in content.items()
        }

    if TYPE_CHECKING:
        # Type checkers do not know the keys that are made from signatures.
        def __getattr__(self, key: str) -> Any: ...


class NamedSection(Section):
    """A section of a recipe whose other keys depend on its `name`."""

    name: str


def keys_of(
    function: Callable[..., Any], keys: Sequence[str]
) -> Callable[[type[S]], type[S]]:
    """A decorator that adds arguments of a function to a section as keys."""

    def extend(section: type[S]) -> type[S]:
        return create_model(
            section.__name__,
            __base__=section,
            __doc__=section.__doc__,
            __module__=section.__module__,
            **fields_of(function, keys.__contains__),
        )

    return extend


def fields_of(
    function: Callable[..., Any], is_key: Callable[[str], bool]
) -> Fields:
    """The fields of a section for arguments of a function, chosen by `is_key`.

    Types are those of the signature, as far as YAML can express them: an
    argument that takes a name or a model takes a name. Arguments that
    YAML cannot express are left out; a required one raises a ValueError.
    """
    parameters = inspect.signature(function).parameters.values()
    is_class = inspect.isclass(function)
    annotated = function.__init__ if is_class else function
    hints = get_type_hints(annotated, include_extras=True)
    fields: Fields = {}
    for parameter in parameters:
        is_named = parameter.kind is not parameter.VAR_KEYWORD
        if not is_named or not is_key(parameter.name):
            continue
        hint = hints.get(parameter.name)
        plain = None if hint is None else _plain(hint)
        is_required = parameter.default is parameter.empty
        if hint is None or (plain is None and is_required):
            raise ValueError(
                f"the argument `{parameter.name}` of {function.__name__} "
                "must have a type that YAML can express, such as int or "
                f"Literal['a', 'b']. Received: {parameter}"
            )
        if plain is not None:
            default = ... if is_required else parameter.default
            fields[parameter.name] = (plain, default)
    return fields


def _plain(hint: Any) -> Any:
    """The part of a type that YAML can express; None if there is none."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner = _plain(arguments[0])
        return inner and Annotated[(inner, *arguments[1:])]
    if origin in (Union, UnionType):
        plain = tuple(x for x in map(_plain, arguments) if x is not None)
        if all(x is type(None) for x in plain):
            return None
        union = reduce(or_, plain)
        if losses.MetricLoss in arguments:
            return Annotated[union, AfterValidator(_validate_loss)]
        return union
    if origin is Literal or hint in _PLAIN:
        return hint
    if origin in (dict, Mapping):
        return GenericAlias(dict, arguments)
    if origin is tuple:
        inner = tuple(x if x is ... else _plain(x) for x in arguments)
        return None if None in inner else GenericAlias(tuple, inner)
    if origin in (list, Sequence):
        element = _plain(arguments[0])
        return element and GenericAlias(tuple, (element, ...))
    return None


def _validate_loss(loss: Any) -> Any:
    if loss is not None:
        # The training set is not known yet: counts are made up.
        numbers = [n for n in values_of(loss) if isinstance(n, int)]
        counts = values_of(loss, "class_counts")
        numbers += [len(x) for x in counts if isinstance(x, list)]
        config = fill_counts(loss, [1] * max(numbers, default=_MANY_CLASSES))
        try:
            with _without_devices():
                losses.get(config)
        except ValueError:
            # It is invalid, or a user's own that needs its values at once.
            losses.get(config)
    return _without_needless_sections(loss)


@contextmanager
def _without_devices() -> Iterator[None]:
    """Leaves variables without values, and forgets them.

    A value would start TensorFlow, whose devices and workers are then fixed,
    and Keras would initialize remembered variables together with the model.
    """
    key = "uninitialized_variables"
    before = list(global_state.get_global_attribute(key, []))
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute(key, before)


def _without_needless_sections(loss: Any) -> Any:
    """`loss` with "x" for every {"name": "x"}, which means the same.

    Otherwise, recipes that train alike would differ.
    """
    if not isinstance(loss, dict):
        return loss
    if set(loss) == {"name"}:
        return loss["name"]
    return {
        key: _without_needless_sections(value) if key == "loss" else value
        for key, value in loss.items()
    }


def fill_counts(config: Any, counts: Sequence[int]) -> Any:
    """`config` with numbers for every "auto" inside it.

    `counts` is the number of examples of each training class.
    """
    if isinstance(config, dict):
        values = {"num_classes": len(counts), "class_counts": list(counts)}
        return {
            key: values[key]
            if value == "auto" and key in values
            else fill_counts(value, counts)
            for key, value in config.items()
        }
    if isinstance(config, list | tuple):
        return type(config)(fill_counts(value, counts) for value in config)
    return config


def values_of(config: Any, key: str = "num_classes") -> Iterator[Any]:
    """The values of a key, at any depth of `config`."""
    if isinstance(config, dict):
        if key in config:
            yield config[key]
        config = list(config.values())
    if isinstance(config, list | tuple):
        for value in config:
            yield from values_of(value, key)
