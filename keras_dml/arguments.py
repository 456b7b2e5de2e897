"""Checks of constructor arguments, with errors that name the way out."""

from collections.abc import Iterable
from typing import Any


def check_choice(
    owner: str, name: str, value: Any, choices: Iterable[str]
) -> None:
    """Raises `ValueError` unless `value` is one of `choices`."""
    allowed = tuple(choices)
    if value not in allowed:
        raise ValueError(
            f"`{name}` of {owner} must be one of {allowed}. "
            f"Received: {name}={value!r}."
        )


def check_positive(owner: str, name: str, value: float) -> None:
    """Raises `ValueError` unless `value` is greater than zero."""
    if not value > 0:
        raise ValueError(
            f"`{name}` of {owner} must be greater than 0. "
            f"Received: {name}={value!r}."
        )


def check_count(owner: str, name: str, value: Any, least: int = 1) -> None:
    """Raises `ValueError` unless `value` is an integer >= `least`."""
    if not isinstance(value, int) or value < least:
        raise ValueError(
            f"`{name}` of {owner} must be an integer of at least {least}. "
            f"Received: {name}={value!r}."
        )
