"""Requests of `:predict`: from JSON to arrays."""

import binascii
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import tensorflow as tf

from keras_dml.serve.errors import RequestError

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

_NUMBERS = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}
"""Kinds of NumPy's numbers that may stand where one of a kind is expected."""


def memory_of(body: bytes) -> int:
    """About the memory that `parse` and `read_inputs` take, in bytes.

    Each list of Python takes 96 bytes, each object 256, and each number as much
    as its list has places, with the arrays that are made of it.
    """
    lists, objects, items = (body.count(x) for x in (b"[", b"{", b","))
    return 2 * len(body) + 96 * lists + 256 * objects + 64 * items


def parse(body: bytes) -> dict[str, Any]:
    """The object that a text in JSON is.

    Raises:
        RequestError: If it is no object in JSON, or has a number that no float
            holds.
    """
    try:
        document = orjson.loads(body)
    # Also lists in lists in lists, which would exhaust the stack.
    except orjson.JSONDecodeError as error:
        raise RequestError(
            f"The body of a request must be JSON. It cannot be read: {error}."
        ) from error
    if not isinstance(document, dict):
        raise wrong("body", "be an object", document)
    return document


def read_inputs(
    instances: Any, specs: Mapping[str, tf.TensorSpec], are_files: bool = False
) -> Arrays:
    """The arrays of a request, for the inputs of its signature.

    Args:
        instances: A list of B values of the only input, or of objects that
            have a value for each input.
        specs: What the signature takes, by name.
        are_files: Whether strings are image files, which text cannot be.

    Returns:
        The arrays by name, of B rows.

    Raises:
        RequestError: If they are not what the signature takes.
    """
    if not isinstance(instances, list) or not instances:
        raise wrong("instances", "be a list of one item or more", instances)
    columns = {}
    if len(specs) == 1 and not _is_named(instances[0]):
        columns = {next(iter(specs)): instances}
    else:
        for row in instances:
            if not _is_named(row) or row.keys() != specs.keys():
                rule = f"be a list of objects with the keys {sorted(specs)}"
                raise wrong("instances", rule, row)
        columns = {name: [row[name] for row in instances] for name in specs}
    for file in columns["images"] if are_files else ():
        if not _is_b64(file):
            rule = 'hold image files as objects {"b64": "…"}'
            raise wrong("images", rule, file)
    return {
        name: as_array(value, specs[name], name)
        for name, value in columns.items()
    }


def as_array(value: Any, spec: tf.TensorSpec, key: str) -> Array:
    """The array that nested lists are; `object` is for strings, as bytes.

    Raises:
        RequestError: If it is not of this spec; the key is named.
    """
    nested = np.array(value, object)
    flat = nested.ravel().tolist()
    if any(isinstance(x, list) for x in flat):
        rule = "hold either values or lists of one length at each level"
        raise wrong(key, rule, value)
    if spec.dtype == tf.string:
        array = np.empty(len(flat), object)
        array[:] = [_bytes(x, key) for x in flat]
    else:
        array = _numbers(flat, spec.dtype, key)
    if not spec.shape.is_compatible_with(nested.shape):
        rule = f"have the shape {spec.shape}, where None is any length"
        raise wrong(key, rule, nested.shape)
    return array.reshape(nested.shape)


def wrong(key: str, rule: str, received: Any) -> RequestError:
    """The error of a request whose value of a key breaks a rule."""
    shown = reprlib.repr(received)
    return RequestError(f"`{key}` must {rule}. Received: {shown}.")


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and not _is_b64(value)


def _is_b64(value: Any) -> bool:
    """Whether a value is bytes: an object {"b64": "…"}."""
    return (
        isinstance(value, dict)
        and len(value) == 1
        and isinstance(value.get("b64"), str)
    )


def _bytes(value: Any, key: str) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
        if _is_b64(value):
            text = value["b64"] + "=" * (-len(value["b64"]) % 4)
            return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # Half a character, as "\ud800"; no base64.
        pass
    rule = 'hold strings, or objects {"b64": "…"} with bytes in base64'
    raise wrong(key, rule, value)


def _numbers(flat: list[Any], dtype: tf.DType, key: str) -> Array:
    """Numbers as a type, which must hold all of them."""
    result_type = np.dtype(dtype.as_numpy_dtype)
    rule = f"hold values of type {dtype.name}"
    kinds = {bool} if dtype.is_bool else {int, float}
    if not kinds.issuperset(map(type, flat)):
        other = next(x for x in flat if type(x) not in kinds)
        raise wrong(key, rule, other)
    array = np.array(flat)  # Of objects, if a number is too large.
    if not flat:
        return array.astype(result_type)
    if array.dtype.kind not in _NUMBERS.get(result_type.kind, ""):
        raise wrong(key, rule, flat[0])
    with np.errstate(all="ignore"):
        cast = array.astype(result_type)
        if array.dtype.kind == "f":
            is_exact = np.isfinite(cast) == np.isfinite(array)
        elif result_type.kind == "f":
            is_exact = cast.astype(array.dtype) == array
        else:
            is_exact = cast == array
    if not is_exact.all():
        raise wrong(key, rule, array[~is_exact].tolist()[0])
    return cast
