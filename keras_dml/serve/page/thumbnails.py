"""Thumbnails: small pictures of the rows of a gallery, by key."""

import base64
import binascii
import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

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


@dataclass(frozen=True)
class Picture:
    """The file that the small picture of a row is made of.

    Attributes:
        path: The file.
        box: The part of it; None: all.
        changed: When it was changed.
        pixels: Pixels that are decoded to make it.
    """

    path: str
    box: tuple[int, ...] | None
    changed: int
    pixels: int

    def made(self) -> str:
        """The data URI.

        Raises:
            NoPicture: If the file cannot be read.
        """
        with _readable():
            return _made(self.path, self.box, self.changed)


def picture_of(
    index: Index | None, key: Key, most_pixels: int
) -> str | Picture:
    """Where the small picture of a row comes from; no file is decoded.

    It is the row's own thumbnail, a data URI, or made from the file that its
    path names; no key leads to a file that is of no row.

    Args:
        index: The gallery.
        key: The key of the row.
        most_pixels: Pixels that may be decoded.

    Raises:
        NoPicture: If there is no such row, it has no picture, or its file
            cannot be read.
        RequestError: If the gallery has keys of another type.
    """
    if index is None:
        raise NoPicture("There is no gallery.")
    try:
        row = index[key]
    except KeyError:
        raise NoPicture(f"The gallery has no row {key!r}.") from None
    except ValueError as error:
        raise RequestError(str(error)) from error
    if row.get("thumbnail") or not row.get("path"):
        return str(row.get("thumbnail"))
    with _readable():
        path = str(row["path"])
        box = tuple(row["box"]) if row.get("box") else None
        changed = os.stat(path).st_mtime_ns
        pixels = pixels_of_thumbnail(path, box, SIDE, most_pixels)
    return Picture(path, box, changed, pixels)


def content_of(uri: str, key: Key) -> tuple[bytes, str]:
    """The bytes of a picture, and its MIME type.

    Raises:
        NoPicture: If it is none.
    """
    found = _URI.fullmatch(uri)
    if found is None:
        raise NoPicture(f"The row {key!r} has no picture.")
    try:
        return base64.b64decode(found[2], validate=True), found[1]
    except binascii.Error:
        raise NoPicture(f"The row {key!r} has a damaged picture.") from None


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


@lru_cache(maxsize=512)
def _made(path: str, box: tuple[int, ...] | None, changed: int) -> str:
    """A file's thumbnail, made again when it has changed."""
    return row_thumbnail({"path": path, "box": box}) or ""
