"""Requests of :predict: from JSON to tensors, and from tensors to JSON."""

import binascii
import json
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import tensorflow as tf

from keras_dml.serve.errors import RequestError

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

ROWS, COLUMNS = "instances", "inputs"

_NUMBERS = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}
"""Kinds of NumPy's numbers that may stand where one of a kind is wanted."""


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
    # Not UTF-8 either; numbers of thousands of digits; lists in lists.
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"The body of a request must be JSON. It cannot be read: {error}."
        ) from error


def signature_of(document: Any) -> str:
    """The name of the signature that a request wants."""
    if not isinstance(document, dict):
        raise wrong("body", "be an object", document)
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise wrong("signature_name", "be a string", name)
    return name or "serving_default"


def read_inputs(
    document: dict[str, Any],
    specs: Mapping[str, tf.TensorSpec],
    are_files: bool = False,
) -> tuple[bool, Arrays]:
    """The tensors of a request, for the inputs of its signature.

    With `are_files`, strings are image files, which text cannot be.

    Returns:
        Whether the request is in row format, which the answer then has, too;
        and the tensors by name.

    Raises:
        RequestError: If they are not what the signature takes.
    """
    if (ROWS in document) == (COLUMNS in document):
        rule = f"have either `{ROWS}` or `{COLUMNS}`"
        raise wrong("body", rule, sorted(document))
    is_row = ROWS in document
    key = ROWS if is_row else COLUMNS
    columns = (_of_rows if is_row else _of_columns)(document[key], specs)
    inputs = {}
    for name, value in columns.items():
        inputs[name] = tensor(value, specs[name], name)
        if are_files and specs[name].dtype == tf.string:
            for file in value:
                if not _is_b64(file):
                    rule = 'hold image files as objects {"b64": "…"}'
                    raise wrong(name, rule, file)
    return is_row, inputs


def tensor(value: Any, spec: tf.TensorSpec, key: str) -> Array:
    """The tensor that nested lists are; `object` is for strings, as bytes.

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


def answer(outputs: Arrays, is_row: bool) -> bytes:
    """The body of the answer to a request, in its format.

    Raises:
        RequestError: If outputs of different lengths are to be in rows.
    """
    values = {
        name: _texts(x.tolist(), name.endswith("_bytes"))
        if x.dtype == object
        else x
        for name, x in outputs.items()
    }
    content: Any = values
    if len(values) == 1:
        [content] = values.values()
    if not is_row:
        return _dumps({"outputs": content}, outputs.values())
    lengths = {len(x) if x.ndim else None for x in outputs.values()}
    if None in lengths or len(lengths) > 1:
        raise wrong(
            ROWS,
            f"be `{COLUMNS}` for a signature whose outputs have no common rows",
            {name: x.shape for name, x in outputs.items()},
        )
    if content is values:
        rows = zip(*values.values(), strict=True)
        content = [dict(zip(values, x, strict=True)) for x in rows]
    return _dumps({"predictions": content}, outputs.values())


def wrong(key: str, rule: str, received: Any) -> RequestError:
    """The error of a request whose value of a key breaks a rule."""
    shown = reprlib.repr(received)
    return RequestError(f"`{key}` must {rule}. Received: {shown}.")


def _of_rows(values: Any, specs: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
    """The values of each input, a list of those of the instances."""
    if not isinstance(values, list) or not values:
        raise wrong(ROWS, "be a list of one item or more", values)
    if not _is_named(values[0]):
        return {_only(ROWS, specs): values}
    for row in values:
        if not _is_named(row) or row.keys() != specs.keys():
            rule = f"be a list of objects with the keys {sorted(specs)}"
            raise wrong(ROWS, rule, row)
    return {name: [row[name] for row in values] for name in specs}


def _of_columns(
    values: Any, specs: Mapping[str, tf.TensorSpec]
) -> dict[str, Any]:
    """The values of each input."""
    if not _is_named(values):
        return {_only(COLUMNS, specs): values}
    if not specs.keys() <= values.keys():
        rule = f"be an object with the keys {sorted(specs)}"
        raise wrong(COLUMNS, rule, values)
    return {name: values[name] for name in specs}


def _only(key: str, specs: Mapping[str, tf.TensorSpec]) -> str:
    """The name of the one input that needs none."""
    if len(specs) != 1:
        raise wrong(key, f"name the inputs {sorted(specs)}", "values alone")
    return next(iter(specs))


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
    wanted = np.dtype(dtype.as_numpy_dtype)
    rule = f"hold values of type {dtype.name}"
    kinds = {bool} if dtype.is_bool else {int, float}
    if not kinds.issuperset(map(type, flat)):
        other = next(x for x in flat if type(x) not in kinds)
        raise wrong(key, rule, other)
    array = np.array(flat)  # Of objects, if a number is too large.
    if not flat:
        return array.astype(wanted)
    if array.dtype.kind not in _NUMBERS.get(wanted.kind, ""):
        raise wrong(key, rule, flat[0])
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


def _texts(value: Any, as_b64: bool) -> Any:
    """Nested lists of bytes as strings of JSON, or as base64 objects."""
    if isinstance(value, list):
        return [_texts(x, as_b64) for x in value]
    if as_b64:
        return {"b64": binascii.b2a_base64(value, newline=False).decode()}
    return value.decode(errors="replace")


def _dumps(value: Any, arrays: Iterable[Array]) -> bytes:
    """JSON of a value, in UTF-8, in which all numbers are of these arrays.

    A float32 has the digits that tell it from others, not those of a
    float64. What is not finite is NaN, Infinity or -Infinity.
    """
    if all(x.dtype.kind != "f" or np.isfinite(x).all() for x in arrays):
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(value, default=_plain, ensure_ascii=False).encode()


def _plain(array: Any) -> Any:
    if array.dtype.kind == "f":  # The shortest digits of its own type.
        return array.astype("U32").astype("float64").tolist()
    return array.tolist()
