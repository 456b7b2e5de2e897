"""Requests of the page: what they ask for, read and checked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData, UploadFile

from keras_dml.search.keys import Key

DEFAULT_K = 12
MOST_K = 1000
"""A request must not be able to ask for an answer of gigabytes."""


@dataclass(frozen=True)
class Wanted:
    """What is asked of the gallery; see `Index.search`."""

    k: int = DEFAULT_K
    where: dict[str, Any] | None = None
    exclude: Key | None = None


def wanted(given: Mapping[str, Any]) -> Wanted:
    """What the parameters of a request ask for.

    Args:
        given: Texts by name: "k"; "where", conditions by column as JSON; and
            "exclude", a key as JSON.

    Raises:
        ValueError: If one is not as described.
    """
    where = given.get("where") or None
    exclude = given.get("exclude") or None
    return Wanted(
        _count(given.get("k") or str(DEFAULT_K)),
        None if where is None else _conditions(where),
        None if exclude is None else key_of(exclude, "exclude"),
    )


async def of_form(form: FormData) -> tuple[bytes, Wanted]:
    """The picture in the field "picture" of a form, and what it asks for."""
    picture = form.get("picture")
    if not isinstance(picture, UploadFile):
        raise ValueError(
            "`picture` of the form must be a file. Received: no file. Choose a "
            "picture first."
        )
    return await picture.read(), wanted(form)


def key_of(text: str | None, name: str) -> Key:
    """A key from JSON: a number, or a text in quotes."""
    try:
        key = json.loads(text or "")
    except (ValueError, RecursionError):
        key = None
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise ValueError(
            f"`{name}` must be a key as JSON: a whole number, or a text in "
            f"double quotes. Received: {name}={(text or '')[:200]!r}."
        )
    return key


def _count(text: str) -> int:
    # Other digits than these are digits, too, and int() takes "1_0".
    is_number = text.isascii() and text.isdigit() and len(text) <= 9
    if not is_number or not 1 <= int(text) <= MOST_K:
        raise ValueError(
            f"`k` must be a whole number from 1 to {MOST_K}. Received: "
            f"k={text[:40]!r}."
        )
    return int(text)


def _conditions(text: str) -> dict[str, Any]:
    try:
        where = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        where = None
    if not isinstance(where, dict):
        raise ValueError(
            "`where` must be conditions by column, as JSON. Received: "
            f'where={text[:200]!r}. Use for instance {{"name": "crow"}} or '
            '{"price": {">=": 10, "<": 20}}.'
        )
    return where


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
