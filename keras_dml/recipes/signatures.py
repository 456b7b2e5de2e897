"""Sections of recipes, made from the signatures of what they call."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from types import GenericAlias, UnionType
from typing import (
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
from pydantic import AfterValidator, BaseModel, create_model

from keras_dml import losses
from keras_dml.recipes.num_classes import placeholder

Fields: TypeAlias = dict[str, Any]
"""Name → (type, default), as `pydantic.create_model` takes them."""

S = TypeVar("S", bound=BaseModel)

_PLAIN = (bool, int, float, str, type(None), dict, Any)


def keys_of(
    function: Callable[..., Any], keys: Sequence[str]
) -> Callable[[type[S]], type[S]]:
    """A decorator: a section gets arguments of a function as keys."""

    def extended(section: type[S]) -> type[S]:
        return create_model(
            section.__name__,
            __base__=section,
            __doc__=section.__doc__,
            __module__=section.__module__,
            **fields_of(function, keys.__contains__),
        )

    return extended


def fields_of(
    function: Callable[..., Any], is_key: Callable[[str], bool]
) -> Fields:
    """The fields of a section for arguments of a function, chosen by `is_key`.

    Types are those of the signature, as far as YAML can express them: an
    argument that takes a name or a model takes a name. What YAML cannot
    express at all is left out.

    Raises:
        ValueError: If an argument has no type, or must be given and has
            none that YAML can express.
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
        return _plain_union(arguments)
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


def _plain_union(options: tuple[Any, ...]) -> Any:
    plain = tuple(x for x in map(_plain, options) if x is not None)
    if all(x is type(None) for x in plain):
        return None
    union = reduce(or_, plain)
    if losses.MetricLoss in options:
        return Annotated[union, AfterValidator(_known_loss)]
    return union


def _known_loss(loss: Any) -> Any:
    if loss is not None:
        config = placeholder(loss)
        try:
            with _without_devices():
                losses.get(config)
        except ValueError:
            # Wrong, or a loss of the user's own that needs its values at once.
            losses.get(config)
    return _without_needless_sections(loss)


@contextmanager
def _without_devices() -> Iterator[None]:
    """Leaves variables without values, and forgets them.

    A value starts TensorFlow, whose devices and workers are then fixed, and
    Keras would create what it remembers together with the model.
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
