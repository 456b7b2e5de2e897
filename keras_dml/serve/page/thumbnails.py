"""Thumbnails: small pictures of the rows of a gallery, by key."""

import base64
import binascii
import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from keras_dml.data.decode import draft, opened
from keras_dml.data.thumbnails import SIDE, row_thumbnail
from keras_dml.search import Index
from keras_dml.search.rows import Key
from keras_dml.serve.errors import RequestError
from keras_dml.serve.limits import TooManyPixels, check_pixels

_URI = re.compile(r"data:(image/(?:jpeg|png|webp|gif));base64,(.*)", re.DOTALL)
"""Kinds of picture in which nothing can be run, as SVG could."""


def find_row(index: Index | None, key: Key) -> dict[str, Any]:
    """The row of a key; no key leads to a file that is of no row.

    Raises:
        RequestError: If there is no such row, or the gallery has keys of
            another type.
    """
    if index is None:
        raise RequestError("There is no gallery.", 404)
    try:
        return index[key]
    except KeyError:
        raise RequestError(f"The gallery has no row {key!r}.", 404) from None
    except ValueError as error:
        raise RequestError(str(error)) from error


def pixels_to_decode(row: Mapping[str, Any], most: int) -> int:
    """Pixels that are decoded for the thumbnail of a row; 0 if it has one.

    Raises:
        RequestError: If its file cannot be read, or has more than `most`.
    """
    if row.get("thumbnail") or not row.get("path"):
        return 0
    with _readable():
        with opened(str(row["path"])) as image:
            # Of a progressive one all coefficients are in memory.
            if not row.get("box") and not image.info.get("progressive"):
                draft(image, SIDE)
            pixels = math.prod(image.size)
        return check_pixels(pixels, most)


def make_thumbnail(row: Mapping[str, Any]) -> str:
    """The thumbnail that a row brings, or one of its file, a data URI.

    Raises:
        RequestError: If its file cannot be read.
    """
    if row.get("thumbnail") or not row.get("path"):
        return str(row.get("thumbnail"))
    with _readable():
        return row_thumbnail(row) or ""


def content_of(uri: str) -> tuple[bytes, str]:
    """The bytes of a picture, and its MIME type.

    Raises:
        RequestError: If it is none.
    """
    found = _URI.fullmatch(uri)
    if found is None:
        raise RequestError("The row has no picture.", 404)
    try:
        return base64.b64decode(found[2], validate=True), found[1]
    except binascii.Error:
        raise RequestError("The row has a damaged picture.", 404) from None


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """What the file of a row may fail by; a box may be anything."""
    try:
        yield
    except TooManyPixels as error:
        raise RequestError(
            f"The file of the row is too large. {error.detail}", 404
        ) from None
    except (OSError, ValueError, TypeError, OverflowError):
        raise RequestError("The file of the row cannot be read.", 404) from None
