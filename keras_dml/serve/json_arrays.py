"""Arrays in JSON, as TensorFlow Serving reads and writes them.

NumPy reads nested lists. Only where it cannot, or what it reads is of
another type, the lists are walked to say what is wrong, in the words of
TensorFlow Serving.
"""

import binascii
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import orjson

from keras_dml.serve.errors import RequestError

Array = npt.NDArray[Any]

_KINDS = {"f": "iuf", "i": "iu", "u": "iu", "b": "b"}
"""Kinds of NumPy's numbers that may stand where one of a type is wanted."""

_NAMES = {"float32": "float", "float64": "double", "object": "string"}


_MOST_AXES = 64
"""As NumPy has them."""


def parse(body: bytes) -> Any:
    """The value that a text in JSON has; NaN and Infinity are numbers.

    Raises:
        RequestError: If it is no JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        raise RequestError(
            f"JSON Parse error: {error.msg} at offset: {error.pos}"
        ) from error
    except RecursionError:
        raise RequestError("JSON Parse error: nested too deeply") from None
    except ValueError as error:  # Not UTF-8; numbers of thousands of digits.
        raise RequestError(f"JSON Parse error: {error}") from error


def may_hold_bools(body: bytes) -> bool:
    """Whether a text in JSON may have true or false in it."""
    return b"true" in body or b"false" in body


def as_array(
    value: Any, dtype: np.dtype[Any], may_hold_bools: bool = False
) -> Array:
    """The tensor that nested lists are; `object` is for strings, as bytes.

    Args:
        value: Nested lists.
        dtype: The type of the tensor.
        may_hold_bools: Whether to look for truth values, which NumPy takes
            for numbers where they stand among them. It costs time.

    Raises:
        RequestError: If they are no tensor of this type.
    """
    if dtype.kind == "O":
        return _as_strings(value)
    try:
        found = np.asarray(value)
    except (ValueError, OverflowError, RecursionError):
        _explain(value, dtype)
    if not _holds(dtype, found):
        _explain(value, dtype)
    if may_hold_bools and dtype.kind != "b" and _holds_bool(value):
        _explain(value, dtype)
    return found.astype(dtype)


def converted(array: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers as another type.

    Raises:
        RequestError: If that does not hold all of them.
    """
    if not _holds(dtype, array):
        raise RequestError(f"The values are not all of type {_name(dtype)}")
    return array.astype(dtype)


def as_rows(
    values: Sequence[Any], dtype: np.dtype[Any], may_hold_bools: bool = False
) -> Array:
    """`as_array` of a list of instances, whose errors name the instance."""
    try:
        return as_array(values, dtype, may_hold_bools)
    except RequestError as error:
        first: tuple[int, ...] | None = None
        for i, value in enumerate(values):
            try:
                shape = as_array(value, dtype, may_hold_bools).shape
                first = shape if first is None else first
                _check_same(first, shape)
            except RequestError as cause:
                raise RequestError(
                    f"Failed to process element: {i} of 'instances' list. "
                    f"Error: INVALID_ARGUMENT: {cause}"
                ) from cause
        raise error


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


def shown(value: Any) -> str:
    """A value in an error message."""
    text = json.dumps(value, default=np.ndarray.tolist)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _check_same(first: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if math.prod(first) != math.prod(shape):
        raise RequestError(
            f"Expecting tensor size: {math.prod(first)} but got: "
            f"{math.prod(shape)}"
        )
    if first != shape:
        raise RequestError(
            f"Expecting shape {_bracketed(first)} but got: {_bracketed(shape)}"
        )


def _bracketed(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _as_strings(value: Any) -> Array:
    shape = _shape_of(value)
    flat = [_bytes_of(x) for x in _leaves(value, shape, np.dtype(object))]
    array = np.empty(len(flat), object)
    array[:] = flat
    return array.reshape(shape)


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:  # Half a character, as "\ud800".
            raise _wrong_type(value, np.dtype(object)) from None
    if not is_b64(value):
        if isinstance(value, dict):
            raise RequestError(
                f"JSON Value: {shown(value)} not formatted correctly for "
                "base64 data"
            )
        raise _wrong_type(value, np.dtype(object))
    text = value["b64"]
    text += "=" * (-len(text) % 4)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise RequestError("Unable to base64 decode") from None


def _holds_bool(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_bool, value))
    return isinstance(value, bool)


def _holds(dtype: np.dtype[Any], array: Array) -> bool:
    """Whether a type can have all values of an array."""
    if not array.size:
        return True
    is_kind = array.dtype.kind in _KINDS.get(dtype.kind, "")
    return is_kind and _fits(array, dtype)


def _fits(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether a type holds all numbers of an array."""
    if dtype.kind == "b":
        return True
    low, high = array.min(), array.max()
    if dtype.kind == "f" and array.dtype.kind == "f":
        finite = array[np.isfinite(array)]
        most = float(np.finfo(dtype).max)
        return not finite.size or bool(np.abs(finite).max() <= most)
    if dtype.kind == "f":
        most = 2 ** (np.finfo(dtype).nmant + 1) - 1
        return bool(-most <= low and high <= most)
    bounds = np.iinfo(dtype)
    return bool(bounds.min <= low and high <= bounds.max)


def _explain(value: Any, dtype: np.dtype[Any]) -> NoReturn:
    """Raises an error that says what is wrong with nested lists."""
    for leaf in _leaves(value, _shape_of(value), dtype):
        one = np.asarray(leaf)
        if one.dtype.kind not in _KINDS[dtype.kind]:
            raise _wrong_type(leaf, dtype)
        if not _fits(one, dtype):
            if dtype.kind != "f":
                raise _wrong_type(leaf, dtype)
            raise RequestError(
                f"Cannot convert JSON value: {shown(leaf)} to "
                f"{_name(dtype)} without loss of precision."
            )
    raise RequestError(f"The values are not all of type {_name(dtype)}")


def _wrong_type(value: Any, dtype: np.dtype[Any]) -> RequestError:
    kinds = {dict: "Object", list: "Array", str: "String", bool: shown(value)}
    kind = kinds.get(type(value), "Null" if value is None else "Number")
    return RequestError(
        f"JSON Value: {shown(value)} Type: {kind.capitalize()} is not of "
        f"expected type: {_name(dtype)}"
    )


def _name(dtype: np.dtype[Any]) -> str:
    return _NAMES.get(dtype.name, dtype.name)


def _shape_of(value: Any) -> tuple[int, ...]:
    """The shape that the first items of nested lists have."""
    shape: list[int] = []
    while isinstance(value, list):
        if len(shape) == _MOST_AXES:
            raise RequestError("Arrays must not be nested more than 64 deep")
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _leaves(
    value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], level: int = 0
) -> Iterator[Any]:
    """What is in nested lists, which must all have one shape."""
    if not isinstance(value, list):
        if level != len(shape):
            raise RequestError(
                f"JSON Value: {shown(value)} found at incorrect level: "
                f"{level + 1} in the JSON DOM. Expected at level: {len(shape)}"
            )
        yield value
        return
    if level >= len(shape):
        raise RequestError(
            f"Encountered list at unexpected level: {level} expected < "
            f"{len(shape)}"
        )
    if len(value) != shape[level]:
        raise RequestError(
            f"Encountered list at unexpected size: {len(value)} at level: "
            f"{level} expected size: {shape[level]}"
        )
    for item in value:
        yield from _leaves(item, shape, dtype, level + 1)


def _plain(array: Any) -> Any:
    if array.dtype.kind == "f":  # The shortest digits of its own type.
        return array.astype("U32").astype("float64").tolist()
    return array.tolist()
