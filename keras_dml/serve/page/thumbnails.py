"""Thumbnails: small pictures of the rows of a gallery, by key."""

import base64
import binascii
import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dml.data.decode import read_image
from keras_dml.data.thumbnails import thumbnail

if TYPE_CHECKING:
    from keras_dml.search import Index
    from keras_dml.search.keys import Key

_URI = re.compile(r"data:(image/(?:jpeg|png|webp|gif));base64,(.*)", re.DOTALL)
"""Kinds of picture in which nothing can be run, as SVG could."""


class NoPicture(LookupError):
    """There is no picture by a key."""


def picture_of(index: "Index | None", key: "Key") -> tuple[bytes, str]:
    """A small picture of a row, and its MIME type.

    It is the row's own thumbnail, or made from the file that its path names;
    no key leads to a file that is of no row.

    Raises:
        NoPicture: If there is no such row, it has no picture, or its file
            cannot be read.
        ValueError: If the gallery has keys of another type.
    """
    if index is None:
        raise NoPicture("There is no gallery.")
    try:
        row = index[key]
    except KeyError:
        raise NoPicture(f"The gallery has no row {key!r}.") from None
    uri = row.get("thumbnail") or _from_file(row)
    found = _URI.fullmatch(str(uri))
    if found is None:
        raise NoPicture(f"The row {key!r} has no picture.")
    try:
        return base64.b64decode(found[2], validate=True), found[1]
    except binascii.Error:
        raise NoPicture(f"The row {key!r} has a damaged picture.") from None


def _from_file(row: dict[str, Any]) -> str | None:
    """A data URI made from a row's file; None if it names none."""
    if not row.get("path"):
        return None
    try:
        box = tuple(row["box"]) if row.get("box") else None
        path = str(row["path"])
        return _made(path, box, os.stat(path).st_mtime_ns)
    # A box may be anything.
    except (OSError, ValueError, TypeError, OverflowError):
        raise NoPicture("The file of the row cannot be read.") from None


@lru_cache(maxsize=512)
def _made(path: str, box: tuple[int, ...] | None, changed: int) -> str:
    """A file's thumbnail, made again when it has changed."""
    pixels = read_image(path, None if box is None else np.array(box))
    return thumbnail(pixels)
