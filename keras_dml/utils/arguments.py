"""Checks of what is asked for, with errors that say what to do."""

import difflib
import importlib
import math
from collections.abc import Iterable, Sized
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def did_you_mean(name: Any, known: Iterable[str], cutoff: float = 0.5) -> str:
    """A question, after a space, about the known name most like `name`.

    Args:
        name: A name that is not known.
        known: The known names.
        cutoff: How alike they must be, from 0 to 1; see `difflib`.

    Returns:
        For instance " Did you mean 'epochs'?"; empty if none is like it.
    """
    close = difflib.get_close_matches(
        str(name), list(known), n=1, cutoff=cutoff
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


def check_positive(owner: str, name: str, value: float) -> float:
    """`value`; raises `ValueError` unless it is greater than zero."""
    if not value > 0:
        raise ValueError(
            f"`{name}` of {owner} must be greater than 0. "
            f"Received: {name}={value!r}."
        )
    return value


def check_fraction(owner: str, name: str, value: float) -> None:
    """Raises `ValueError` unless `value` is between 0 and 1, and neither."""
    if not 0 < value < 1:
        raise ValueError(
            f"`{name}` of {owner} must be between 0 and 1, exclusive. "
            f"Received: {name}={value!r}."
        )


def check_angle(owner: str, name: str, angle: float) -> float:
    """`angle`; raises `ValueError` unless it lies in [0, π)."""
    if not 0 <= angle < math.pi:
        raise ValueError(
            f"`{name}` of {owner} must be an angle in radians, between 0 and "
            f"π. Received: {name}={angle}. For {angle} degrees, use "
            f"{name}={math.radians(angle):.4f}."
        )
    return angle


def check_count(owner: str, name: str, value: Any, least: int = 1) -> int:
    """`value` as an int; raises `ValueError` unless it is one >= `least`.

    Integers of NumPy count, truth values do not.
    """
    is_whole = isinstance(value, int | np.integer)
    if not is_whole or isinstance(value, bool) or value < least:
        raise ValueError(
            f"`{name}` of {owner} must be an integer of at least {least}. "
            f"Received: {name}={value!r}."
        )
    return int(value)


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
