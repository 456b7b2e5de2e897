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

_SPACE = rb" \t\n\r"
_NUMBER = rb"0-9eE.+\-"
_EXAMPLES = re.compile(
    rb'(?<!\\)"(instances|inputs)"[%b]*:[%b]*(\[[][,%b%b]*\])'
    % (_SPACE, _SPACE, _NUMBER, _SPACE)
)
_BETWEEN_BRACKETS = b"0123456789eE.+- \t\n\r"
_AS_SPACES = bytes.maketrans(b"[]", b"  ")

_PLACE = "\0array"
"""Stands in the document where the array was."""

_MOST_AXES = 8
"""Each takes a walk through the text."""


def read_numbers(body: bytes) -> Any:
    """The document of a request, with an array in place of its examples.

    Args:
        body: A text, which need not be JSON.

    Returns:
        As `json_arrays.parse`, but "instances" or "inputs" is an array; None
        if it is not one of numbers.
    """
    found = _EXAMPLES.search(body)
    array = None if found is None else _read_array(found[2])
    if found is None or array is None:
        return None
    start, end = found.span(2)
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

    From the inside out, lists of one length are replaced by a letter, which
    is another one for each level; None if others are left.
    """
    shape: list[int] = []
    item = b""
    while brackets != item or not shape:
        end = brackets.find(b"]") + 1
        inner = brackets[max(brackets.rfind(b"[", 0, end), 0) : end]
        length = inner.count(b",") + 1
        is_regular = inner == b"[%b]" % b",".join([item] * length)
        if not is_regular or len(shape) == _MOST_AXES:
            return None
        item = b"%c" % (ord("a") + len(shape))
        brackets = brackets.replace(inner, item)
        shape.append(length)
    return tuple(reversed(shape))
