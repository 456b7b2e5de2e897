"""Argument checks, whose errors say what to do.

Ranges and choices are declared by types, such as `Positive` and
`Literal["a", "b"]`; a `Checked` class holds its arguments to them.
"""

import difflib
import importlib
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import cache, partial, wraps
from numbers import Real
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_RANGES: dict[tuple[Any, ...], str] = {
    (Gt,): "greater than {}",
    (Ge,): "at least {}",
    (Gt, Lt): "between {} and {}, exclusive",
    (Gt, Le): "greater than {} and at most {}",
    (Ge, Lt): "at least {} and less than {}",
    (Ge, Le): "between {} and {}",
}


class _Signature:
    """Signature of the constructor; Python 3.11.2 shows that of `__new__`."""

    def __get__(self, instance: Any, cls: Any) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        if cls.__init__ is object.__init__:
            return inspect.Signature()
        return inspect.signature(partial(cls.__init__, None))


class Checked:
    """Base of classes that check their arguments against their types.

    An argument for which a subclass only says `int`, `float` or `str`, or
    which it passes on as `**kwargs`, must fit the type in its base.
    """

    __signature__ = _Signature()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        _check_call(cls, (cls, *args), kwargs)
        new: Any = super().__new__
        is_last = new is object.__new__
        instance: Self = new(cls) if is_last else new(cls, *args, **kwargs)
        return instance


def check_arguments(function: F) -> F:
    """Decorator: checks the arguments of a function against their types."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _check_call(function, args, kwargs)
        return function(*args, **kwargs)

    return cast(F, call)


def _check_call(
    called: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    names, types = arguments_of(called)
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    for name in filter(arguments.__contains__, types):
        check_type(called.__name__, name, arguments[name], types[name])


@cache
def arguments_of(called: Any) -> tuple[list[str], dict[str, Any]]:
    """Names of all arguments, in order, and types of those to check."""
    functions = [
        vars(base)["__init__"]
        for base in getattr(called, "__mro__", ())
        if issubclass(base, Checked) and "__init__" in vars(base)
    ] or [called]
    types: dict[str, Any] = {}
    for function in reversed(functions):
        annotations = dict(function.__annotations__)
        # The type returned may need a package that is not there.
        annotations.pop("return", None)
        try:
            hints = get_type_hints(
                SimpleNamespace(__annotations__=annotations),
                function.__globals__,
                include_extras=True,
            )
        except NameError:  # A type is imported for type checkers alone.
            hints = annotations
        for name, hint in hints.items():
            if name not in types or hint not in (int, float, str):
                types[name] = hint
    names = list(inspect.signature(functions[0]).parameters)
    return names, {x: types[x] for x in types if _is_checked(types[x])}


def _is_checked(expected: Any) -> bool:
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, UnionType):
        return all(x is NoneType or _is_checked(x) for x in arguments)
    if origin is Annotated:
        return isinstance(arguments[1], Ge | Gt)
    return origin is Literal or any(map(_is_checked, arguments))


def check_type(owner: str, name: str, value: Any, expected: Any) -> None:
    """Raises `ValueError` unless `value` fits a type.

    Ranges and choices of a `Literal` are checked, alone, in a union, or in a
    tuple, list or sequence; not what stands for a number, such as a tensor.
    """
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Literal:
        check_choice(owner, name, value, arguments)
    elif origin is Annotated:
        _check_range(owner, name, value, *arguments)
    elif origin in (Union, UnionType):
        if value is not None or NoneType not in arguments:
            options = [x for x in arguments if x is not NoneType]
            fitting = (x for x in options if isinstance(value, _kinds(x)))
            check_type(owner, name, value, next(fitting, options[0]))
    elif origin in (tuple, list, Sequence) and isinstance(value, _SEQUENCES):
        is_fixed = origin is tuple and ... not in arguments
        of_items = arguments if is_fixed else arguments[:1] * len(value)
        for item, of_item in zip(value, of_items, strict=False):
            check_type(owner, name, item, of_item)


_SEQUENCES = (list, tuple, range, np.ndarray)


def _kinds(option: Any) -> tuple[type, ...]:
    """The classes of values that an option of a union accepts."""
    origin, arguments = get_origin(option), get_args(option)
    if origin is Literal:
        return tuple(map(type, arguments))
    if origin is Annotated:
        return (Real,) if arguments[0] is float else (int, np.integer)
    return _SEQUENCES


def _check_range(
    owner: str, name: str, value: Any, number: type, *bounds: Any
) -> None:
    limits = [getattr(x, type(x).__name__.lower()) for x in bounds]
    if number is int:
        check_count(owner, name, value, limits[0])
    elif not isinstance(value, Real | str | None):
        return
    if not isinstance(value, Real) or not all(
        getattr(operator, type(x).__name__.lower())(value, limit)
        for x, limit in zip(bounds, limits, strict=True)
    ):
        rule = _RANGES[tuple(map(type, bounds))].format(*limits)
        raise ValueError(
            f"`{name}` of {owner} must be {rule}. Received: {name}={value!r}."
        )


def did_you_mean(name: Any, names: Iterable[str], cutoff: float = 0.5) -> str:
    """ " Did you mean NAME?" if a name is similar enough; see `difflib`."""
    close = difflib.get_close_matches(
        str(name), list(names), n=1, cutoff=cutoff
    )
    return f" Did you mean {close[0]!r}?" if close else ""


def check_choice(owner: str, name: str, value: T, choices: Iterable[Any]) -> T:
    """`value`; raises `ValueError` unless it is one of `choices`."""
    allowed = tuple(choices)
    if value not in allowed:
        raise ValueError(
            f"`{name}` of {owner} must be one of {allowed}. "
            f"Received: {name}={value!r}."
        )
    return value


def check_angle(owner: str, name: str, angle: float) -> float:
    """`angle`; raises `ValueError` unless it lies in [0, π)."""
    if not 0 <= angle < math.pi:
        raise ValueError(
            f"`{name}` of {owner} must be an angle in radians, between 0 and "
            f"π. Received: {name}={angle}. For {angle} degrees, use "
            f"{name}={math.radians(angle):.4f}."
        )
    return angle


def check_count(owner: str, name: str, value: Any, minimum: int = 1) -> int:
    """`value` as an int; raises `ValueError` unless it is one >= `minimum`."""
    # Integers of NumPy count, truth values do not.
    is_whole = isinstance(value, int | np.integer)
    if not is_whole or isinstance(value, bool) or value < minimum:
        raise ValueError(
            f"`{name}` of {owner} must be an integer of at least {minimum}. "
            f"Received: {name}={value!r}."
        )
    return int(value)


def check_divisible(owner: str, dim: Any, what: str, parts: Any) -> int:
    """Dimensions of each part; `ValueError` unless all are equal.

    Args:
        owner: The class or function that takes the arguments.
        dim: `embedding_dim`, D.
        what: The argument that counts the parts, such as "`num_learners`".
        parts: Their number, K.
    """
    dim = check_count(owner, "embedding_dim", dim)
    if what.startswith("`"):
        parts = check_count(owner, what.strip("`"), parts)
    if dim % parts:
        less, more = dim // parts * parts, -(-dim // parts) * parts
        ways = f"{less} or {more}" if less else f"{more}"
        raise ValueError(
            f"`embedding_dim` of {owner} must be divisible by {what}, "
            f"{parts}. Received: embedding_dim={dim}. Use embedding_dim={ways}."
        )
    return dim // parts


def check_not_empty(owner: str, name: str, value: Sized) -> None:
    """Raises `ValueError` if there is nothing in `value`."""
    if not len(value):
        raise ValueError(
            f"`{name}` of {owner} must not be empty. Received: nothing."
        )


def import_extra(owner: str, module: str, extra: str) -> Any:
    """A module that `owner` needs and an extra of this package installs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{owner} needs the module {module}, which cannot be imported: "
            f'{error}. Use `pip install "keras-dml[{extra}]"`.'
        ) from error


_RATES = "`rate_multipliers` of MetricModel"


def matches(pattern: str, text: str, argument: str = _RATES) -> bool:
    """Whether a regular expression, called `argument`, matches in a text."""
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{argument} must be regular expressions. Received: {pattern!r}. "
            f'{error}. Use "/loss/", for instance.'
        ) from None


def check_patterns(
    patterns: Iterable[str], paths: Sequence[str], argument: str = _RATES
) -> None:
    """Raises `ValueError` if a pattern of `argument` selects no variable.

    For each path of a variable, the first pattern that matches counts.
    """
    unmatched = set(paths)
    for pattern in patterns:
        matching = {path for path in paths if matches(pattern, path, argument)}
        if not matching:
            parts = sorted({part for path in paths for part in path.split("/")})
            raise ValueError(
                f"{argument} must be patterns that match the path of a "
                f"variable. Received: {pattern!r}, which matches none of "
                f"{len(paths)} paths."
                f"{did_you_mean(pattern.strip('/'), parts)} Paths are, "
                f"for example, {paths[0]!r} and {paths[-1]!r}."
            )
        if not matching & unmatched:
            raise ValueError(
                f"{argument}: the first pattern that matches counts. Received: "
                f"{list(patterns)}, in which {pattern!r} matches only what "
                "those before it match. Put it before them."
            )
        unmatched -= matching


_DATABASE = (
    "Fill a database by its own client, as docs/guides/databases.md shows."
)

_PRECISION = (
    'Use a factory string of faiss: "SQfp16", "SQ8" or "RaBitQ,RFlat", also in '
    'lists, such as "IVF1024,SQ8".'
)

_SEARCH = (
    "Evaluation is one process that uses all cores. For a sample of the "
    "queries, use --queries."
)

_CLUSTER = (
    "Commands train on one machine. For several, set up a cluster as "
    "tf.distribute or jax.distributed say, and train by MetricModel.fit."
)

REMOVAL_HINTS = {
    "embed --max-bad": (
        "Images must be readable: `keras-dml data check` lists those that are "
        "not."
    ),
    "embed --workers": (
        "Embedding is one process that uses all cores. For several machines, "
        "use --ray."
    ),
    "evaluate --ray": _SEARCH,
    "evaluate --workers": _SEARCH,
    "export --models-config": (
        "Write models.config by hand, as docs/guides/tensorflow_serving.md "
        "shows."
    ),
    "build --precision": _PRECISION,
    "build --store": _DATABASE,
    "precision": _PRECISION,
    "push": _DATABASE,
    "store": _DATABASE,
    "train --index": _CLUSTER,
    "train --wait": _CLUSTER,
    "train --workers": _CLUSTER,
}
"""What to use instead, by argument, or by command and option."""


def explain_removed(owner: str) -> Callable[[F], F]:
    """Decorator: a removed argument of `owner`, by name, is a TypeError."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for name in kwargs.keys() & REMOVAL_HINTS.keys():
                raise TypeError(
                    f"{owner} has no argument `{name}` any more. Received: "
                    f"{name}={kwargs[name]!r}. {REMOVAL_HINTS[name]}"
                )
            return function(*args, **kwargs)

        return cast(F, call)

    return decorate
