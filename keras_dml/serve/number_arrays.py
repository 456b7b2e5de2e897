"""Requests whose examples are one array of numbers, read without nested lists.

Python takes most of its time for lists of pixels with one list for each pixel.
What is regular is read as one flat list, whose shape the brackets tell.
Everything else is left to `json_arrays`, which knows all forms and errors.
"""

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

_KEY = re.compile(rb'"(instances|inputs)"[ \t\n\r]*:[ \t\n\r]*(?=\[)')
_BETWEEN_BRACKETS = b"0123456789eE.+- \t\n\r"
_AS_SPACES = bytes.maketrans(b"[]", b"  ")

_PLACE = "\0array"
"""Stands in the document where the array was."""

_MOST_AXES = 8


def read_numbers(body: bytes) -> Any:
    """The document of a request, with an array in place of its examples.

    Args:
        body: A text, which need not be JSON.

    Returns:
        As `json_arrays.parse`, but "instances" or "inputs" is an array; None
        if it is not one of numbers.
    """
    found = _KEY.search(body)
    # A quotation mark after a backslash does not begin a key.
    if found is None or body.endswith(b"\\", 0, found.start()):
        return None
    start, end = found.end(), _end_of(body, found.end())
    array = _read_array(body[start:end])
    if array is None:
        return None
    rest = body[:start] + orjson.dumps(_PLACE) + body[end:]
    try:
        document = orjson.loads(rest)
    except orjson.JSONDecodeError:
        return None
    key = found[1].decode()
    # It may have stood deeper in the document.
    if not isinstance(document, dict) or document.get(key) != _PLACE:
        return None
    return {**document, key: array}


def _end_of(body: bytes, start: int) -> int:
    """Where lists of numbers end that begin at a place, if they are that.

    Behind them, there is the end of the document or another key.
    """
    after = [body.find(x, start) for x in (b'"', b"}")]
    stop = min((x for x in after if x >= 0), default=len(body))
    return body.rfind(b"]", start, stop) + 1


def _read_array(text: bytes) -> npt.NDArray[Any] | None:
    shape = _shape_of(text.translate(None, _BETWEEN_BRACKETS))
    if shape is None:
        return None
    try:
        flat = orjson.loads(b"[%b]" % text.translate(_AS_SPACES))
        if len(flat) != math.prod(shape):
            return None
        return _as_array(flat).reshape(shape)
    except (ValueError, OverflowError):
        return None


def _as_array(numbers: list[Any]) -> npt.NDArray[Any]:
    try:
        return np.frombuffer(bytes(numbers), np.uint8)
    except (TypeError, ValueError):  # Not all are from 0 to 255.
        return np.asarray(numbers)


def _shape_of(brackets: bytes) -> tuple[int, ...] | None:
    """The shape of nested lists, of which brackets and commas are given.

    From the inside out, the first list of each level tells how many lists of
    the level below one has. None if the others are not the same, or if there
    is anything else between them.
    """
    depth = len(brackets) - len(brackets.lstrip(b"["))
    if depth > _MOST_AXES:
        return None
    shape: list[int] = []
    item = b""
    for level in range(1, depth + 1):
        start = depth - level
        end = brackets.find(b"]" * level) + level
        length = (end - start - 1) // (len(item) + 1)
        item = b"[%b]" % b",".join([item] * length)
        if brackets[start:end] != item:
            return None
        shape.append(length)
    return tuple(reversed(shape)) if shape and item == brackets else None
