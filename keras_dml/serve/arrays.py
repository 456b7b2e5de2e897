"""Arrays in JSON, as TensorFlow Serving reads and writes them."""

import binascii
import json
import math
import re
import reprlib
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import tensorflow as tf

from keras_dml.serve.errors import RequestError

Array = npt.NDArray[Any]

_NUMBERS = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}
"""Kinds of NumPy's numbers that may stand where one of a kind is wanted."""

_MOST_AXES = 32
"""As all versions of NumPy have them."""

_KEY = re.compile(rb'"(instances|inputs)"\s*:\s*(?=\[)')
_NO_BRACKETS = b"0123456789eE.+- \t\n\r"
_AS_SPACES = bytes.maketrans(b"[]", b"  ")
_PLACE = "\0array"


def parse(body: bytes) -> Any:
    """The value that a text in JSON has; NaN and Infinity are numbers.

    Returns:
        Lists, dicts, texts and numbers. "instances" or "inputs" of a document
        is an array instead, if it has numbers alone.

    Raises:
        RequestError: If it is no JSON.
    """
    if (document := _with_array(body)) is not None:
        return document
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(body)
    # Not UTF-8 either; numbers of thousands of digits; lists in lists.
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"The body of a request must be JSON. It cannot be read: {error}."
        ) from error


def tensor(value: Any, spec: tf.TensorSpec, key: str) -> Array:
    """The tensor that nested lists are; `object` is for strings, as bytes.

    Args:
        value: Nested lists, or an array.
        spec: Its type and shape.
        key: What errors name it.

    Raises:
        RequestError: If it is no such tensor.
    """
    if isinstance(value, np.ndarray) and spec.dtype != tf.string:
        array = _cast(value, spec.dtype, key)
    else:
        flat, shape = _flattened(value, key)
        if spec.dtype == tf.string:
            array = np.empty(len(flat), object)
            array[:] = [_bytes(x, key) for x in flat]
        else:
            array = _cast(_numbers(flat, spec.dtype, key), spec.dtype, key)
        array = array.reshape(shape)
    if not spec.shape.is_compatible_with(array.shape):
        rule = f"have the shape {spec.shape}, where None is any length"
        raise wrong(key, rule, array.shape)
    return array


def dumps(value: Any, arrays: Iterable[Array]) -> bytes:
    """JSON of a value with arrays in it, in UTF-8.

    A float32 has the digits that tell it from others, not those of a
    float64. What is not finite is NaN, Infinity or -Infinity.

    Args:
        value: The value.
        arrays: Those of which all numbers in it are.
    """
    if all(x.dtype.kind != "f" or np.isfinite(x).all() for x in arrays):
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(value, default=_plain, ensure_ascii=False).encode()


def texts(value: Any, as_b64: bool) -> Any:
    """Nested lists of bytes as strings of JSON, or as base64 objects."""
    if isinstance(value, list):
        return [texts(x, as_b64) for x in value]
    if as_b64:
        return {"b64": binascii.b2a_base64(value, newline=False).decode()}
    return value.decode(errors="replace")


def is_b64(value: Any) -> bool:
    """Whether a value is bytes: an object {"b64": "…"}."""
    return (
        isinstance(value, dict)
        and len(value) == 1
        and isinstance(value.get("b64"), str)
    )


def wrong(key: str, rule: str, received: Any) -> RequestError:
    """The error of a request whose value of a key breaks a rule."""
    shown = reprlib.repr(received)
    return RequestError(f"`{key}` must {rule}. Received: {shown}.")


def _with_array(body: bytes) -> dict[str, Any] | None:
    """The document of a request, with an array in place of its examples.

    Python takes most of its time for lists of pixels with one list for each
    pixel. So they are read as one flat list, whose shape the brackets say.

    Returns:
        None where this cannot be done: lists of several lengths, texts, `true`
        among numbers, or what is no JSON at all.
    """
    found = _KEY.search(body)
    # A quotation mark after a backslash does not begin a key.
    if found is None or body.endswith(b"\\", 0, found.start()):
        return None
    start = found.end()
    # Behind the lists there is another key, or the end of the document.
    after = [
        x for x in (body.find(b'"', start), body.find(b"}", start)) if x > 0
    ]
    end = body.rfind(b"]", start, min(after, default=len(body))) + 1
    text = body[start:end]
    shape = _shape_of(text.translate(None, _NO_BRACKETS))
    try:
        place = orjson.dumps(_PLACE)
        document = orjson.loads(body[:start] + place + body[end:])
        flat = orjson.loads(b"[%b]" % text.translate(_AS_SPACES))
    except orjson.JSONDecodeError:
        return None
    key = found[1].decode()
    if shape is None or len(flat) != math.prod(shape):
        return None
    # It may have stood deeper in the document.
    if not isinstance(document, dict) or document.get(key) != _PLACE:
        return None
    try:
        array: Array = np.frombuffer(bytes(flat), np.uint8)
    except (TypeError, ValueError):  # Not all are from 0 to 255.
        array = np.array(flat)
    return {**document, key: array.reshape(shape)}


def _shape_of(brackets: bytes) -> tuple[int, ...] | None:
    """The shape of nested lists, of which brackets and commas are left.

    From the inside out, the first list of each level says how many lists of
    the level below all of them have. None if they have not.
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
        shape.append(length)
    return tuple(reversed(shape)) if shape and item == brackets else None


def _flattened(value: Any, key: str) -> tuple[list[Any], list[int]]:
    """Nested lists as one list, and the shape that all of them have."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    flat, shape = [value], list[int]()
    while list in (kinds := set(map(type, flat))):
        if kinds != {list}:
            rule = f"hold either lists or values at level {len(shape)}"
            raise wrong(key, rule, value)
        lengths = set(map(len, flat))
        if len(lengths) > 1:
            rule = f"hold lists of one length at level {len(shape)}"
            raise wrong(key, rule, value)
        if len(shape) == _MOST_AXES:
            raise wrong(key, f"have at most {_MOST_AXES} levels", value)
        shape += lengths
        flat = list(chain.from_iterable(flat))
    return flat, shape


def _numbers(flat: list[Any], dtype: tf.DType, key: str) -> Array:
    kinds = {bool} if dtype.is_bool else {int, float}
    if not kinds.issuperset(map(type, flat)):
        other = next(x for x in flat if type(x) not in kinds)
        raise wrong(key, f"hold values of type {dtype.name}", other)
    return np.array(flat)  # Of objects, if a number is too large.


def _cast(array: Array, dtype: tf.DType, key: str) -> Array:
    """Numbers as another type, which must hold all of them."""
    wanted = np.dtype(dtype.as_numpy_dtype)
    rule = f"hold values of type {dtype.name}"
    if not array.size:
        return array.astype(wanted)
    if array.dtype.kind not in _NUMBERS.get(wanted.kind, ""):
        raise wrong(key, rule, array.ravel()[:1].tolist()[0])
    with np.errstate(all="ignore"):
        cast = array.astype(wanted)
        if array.dtype.kind == "f":
            is_exact = np.isfinite(cast) == np.isfinite(array)
        elif wanted.kind == "f":
            is_exact = cast.astype(array.dtype) == array
        else:
            is_exact = cast == array
    if not is_exact.all():
        raise wrong(key, rule, array[~is_exact].tolist()[0])
    return cast


def _bytes(value: Any, key: str) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
        if is_b64(value):
            text = value["b64"] + "=" * (-len(value["b64"]) % 4)
            return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # Half a character, as "\ud800"; no base64.
        pass
    rule = 'hold strings, or objects {"b64": "…"} with bytes in base64'
    raise wrong(key, rule, value)


def _plain(array: Any) -> Any:
    if array.dtype.kind == "f":  # The shortest digits of its own type.
        return array.astype("U32").astype("float64").tolist()
    return array.tolist()
