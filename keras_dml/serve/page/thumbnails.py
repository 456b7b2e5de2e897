"""Thumbnails: small pictures of the rows of a gallery, by key."""

import base64
import binascii
import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from keras_dml.data.thumbnails import SIDE, row_thumbnail
from keras_dml.search import Index
from keras_dml.search.rows import Key
from keras_dml.serve.errors import RequestError
from keras_dml.serve.limits import TooManyPixels, pixels_of_thumbnail

_URI = re.compile(r"data:(image/(?:jpeg|png|webp|gif));base64,(.*)", re.DOTALL)
"""Kinds of picture in which nothing can be run, as SVG could."""


class NoPicture(RequestError):
    """There is no picture by a key."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 404)


def find_row(index: Index | None, key: Key) -> dict[str, Any]:
    """The row of a key; no key leads to a file that is of no row.

    Raises:
        NoPicture: If there is no such row.
        RequestError: If the gallery has keys of another type.
    """
    if index is None:
        raise NoPicture("There is no gallery.")
    try:
        return index[key]
    except KeyError:
        raise NoPicture(f"The gallery has no row {key!r}.") from None
    except ValueError as error:
        raise RequestError(str(error)) from error


def pixels_to_decode(row: Mapping[str, Any], most: int) -> int:
    """Pixels that are decoded for the thumbnail of a row; 0 if it has one.

    Raises:
        NoPicture: If its file cannot be read, or has more than `most`.
    """
    if row.get("thumbnail") or not row.get("path"):
        return 0
    with _readable():
        box = row.get("box") or None
        return pixels_of_thumbnail(str(row["path"]), box, SIDE, most)


def make_thumbnail(row: Mapping[str, Any]) -> str:
    """The thumbnail that a row brings, or one of its file, a data URI.

    Raises:
        NoPicture: If its file cannot be read.
    """
    if row.get("thumbnail") or not row.get("path"):
        return str(row.get("thumbnail"))
    with _readable():
        return row_thumbnail(row) or ""


def content_of(uri: str) -> tuple[bytes, str]:
    """The bytes of a picture, and its MIME type.

    Raises:
        NoPicture: If it is none.
    """
    found = _URI.fullmatch(uri)
    if found is None:
        raise NoPicture("The row has no picture.")
    try:
        return base64.b64decode(found[2], validate=True), found[1]
    except binascii.Error:
        raise NoPicture("The row has a damaged picture.") from None


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """What the file of a row may fail by; a box may be anything."""
    try:
        yield
    except TooManyPixels as error:
        raise NoPicture(
            f"The file of the row is too large. {error.detail}"
        ) from None
    except (OSError, ValueError, TypeError, OverflowError):
        raise NoPicture("The file of the row cannot be read.") from None
