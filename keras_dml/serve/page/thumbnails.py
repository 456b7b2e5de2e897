"""Thumbnails: small pictures of the rows of a gallery, by key."""

import base64
import binascii
import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import PIL.Image

from keras_dml.data.decode import open_image
from keras_dml.data.thumbnails import SIDE, row_thumbnail, thumbnail
from keras_dml.search import Index
from keras_dml.search.rows import Key
from keras_dml.serve.errors import RequestError
from keras_dml.serve.pictures import read_picture, weigh_image

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


def weigh_row(row: Mapping[str, Any], max_pixels: int) -> int:
    """What the thumbnail of a row takes, in pixels; 0 if the row brings it.

    Raises:
        RequestError: If its file cannot be read, or takes more than
            `max_pixels`.
    """
    if row.get("thumbnail") or not row.get("path"):
        return 0
    with _readable(), open_image(str(row["path"])) as image:
        # A box is cut out of the whole picture.
        return weigh_image(image, max_pixels, is_whole=bool(row.get("box")))


def make_thumbnail(row: Mapping[str, Any]) -> str:
    """The thumbnail that a row brings, or one of its file, a data URI.

    Raises:
        RequestError: If its file cannot be read.
    """
    if row.get("thumbnail") or not row.get("path"):
        return str(row.get("thumbnail"))
    with _readable():
        if row.get("box"):
            return row_thumbnail(row) or ""
        return thumbnail(read_picture(str(row["path"]), (2 * SIDE, 2 * SIDE)))


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
    except (
        OSError,
        ValueError,
        TypeError,
        OverflowError,
        PIL.Image.DecompressionBombError,
    ):
        raise RequestError("The file of the row cannot be read.", 404) from None
