"""Requests of :predict: from JSON to tensors, and from tensors to JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_dml.serve.definitions import TensorSpec
from keras_dml.serve.errors import RequestError
from keras_dml.serve.json_arrays import (
    Array,
    as_array,
    as_rows,
    converted,
    dumps,
    is_b64,
    shown,
    texts,
)
from keras_dml.serve.running import Arrays

ROWS, COLUMNS, EXAMPLES = "instances", "inputs", "examples"


@dataclass(frozen=True)
class PredictRequest:
    """What a request of :predict asks for.

    Attributes:
        is_row: Whether it is in row format, which the answer has, too.
        inputs: Tensors by name.
    """

    is_row: bool
    inputs: Arrays


def signature_of(document: Any) -> str:
    """The name of the signature that a request wants."""
    if not isinstance(document, dict):
        raise RequestError(f"JSON Value: {shown(document)} Is not object")
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise RequestError(
            f"JSON Value: {shown(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return name or "serving_default"


def read(
    document: dict[str, Any],
    specs: Mapping[str, TensorSpec],
    may_hold_bools: bool = False,
    are_files: bool = False,
) -> PredictRequest:
    """The tensors of a request, for the inputs of its signature.

    Args:
        document: The request, of lists or as `read_numbers` reads it.
        specs: The inputs by name.
        may_hold_bools: As of `as_array`.
        are_files: Whether strings are image files, which text cannot be.

    Raises:
        RequestError: In the words of TensorFlow Serving, if they are not
            what the signature takes.
    """
    if ROWS in document and COLUMNS in document:
        raise RequestError(
            f"JSON Value: {shown(document)} Not formatted correctly expecting "
            f"only one of '{COLUMNS}' or '{ROWS}' keys to exist "
        )
    is_row = ROWS in document
    if not is_row and COLUMNS not in document:
        raise RequestError("Missing 'inputs' or 'instances' key")
    named = _rows if is_row else _columns
    values = named(document[ROWS if is_row else COLUMNS], specs)
    convert = as_rows if is_row else as_array
    inputs = {
        name: converted(value, specs[name].dtype)
        if isinstance(value, np.ndarray)
        else convert(value, specs[name].dtype, may_hold_bools)
        for name, value in values.items()
    }
    for name, array in inputs.items():
        specs[name].check(name, array)
        if are_files and array.dtype == object:
            _check_files(values[name])
    return PredictRequest(is_row, inputs)


def _check_files(values: Sequence[Any]) -> None:
    for value in values:
        if not is_b64(value):
            raise RequestError(
                'Image files must be objects {"b64": "…"} with the bytes of a '
                f"file in base64. Received: the string {shown(value)}."
            )


def check_examples(document: dict[str, Any]) -> None:
    """Raises `RequestError` unless it has the form of :classify, :regress."""
    examples = document.get(EXAMPLES)
    if EXAMPLES not in document:
        reason = (
            f"When method is classify, key '{EXAMPLES}' is expected and was "
            "not found"
        )
    elif not isinstance(examples, list):
        reason = f"Expecting '{EXAMPLES}' value to be an list/array"
    elif not examples:
        reason = f"'{EXAMPLES}' value is an empty array"
    else:
        return
    raise RequestError(f"JSON Value: {shown(document)} {reason}")


def _rows(values: Any, specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    """The values of each input, a list of those of the instances."""
    if not isinstance(values, list | np.ndarray):
        raise RequestError(
            f"JSON Value: {shown(values)} Excepting '{ROWS}' to be an "
            "list/array"
        )
    if len(values) == 0:
        raise RequestError(
            f"JSON Value: {shown(values)} No values in '{ROWS}' array"
        )
    if not _is_named(values[0]):
        return _plain_rows(values, specs)
    for i, row in enumerate(values):
        if not _is_named(row):
            raise RequestError(
                f"Expecting object but got list at item {i} of input list"
            )
        if row.keys() != specs.keys():
            raise RequestError(
                f"Failed to process element: {i} of '{ROWS}' list. JSON "
                f"object: {shown(row)} keys must be equal to: "
                f"{','.join(sorted(specs))}"
            )
    return {name: [row[name] for row in values] for name in specs}


def _plain_rows(
    values: Sequence[Any] | Array, specs: Mapping[str, TensorSpec]
) -> dict[str, Any]:
    if len(specs) > 1:
        raise RequestError(
            "instances is a plain list, but expecting list of objects as "
            "multiple input tensors required as per tensorinfo_map"
        )
    for i, row in enumerate(values):
        if _is_named(row):
            raise RequestError(
                f"Expecting value/list but got object at item {i} of input list"
            )
    return {name: values for name in specs}


def _columns(value: Any, specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    """The values of each input."""
    if not _is_named(value):
        if len(specs) > 1:
            raise RequestError(
                "inputs is a plain value/list, but expecting an object as "
                "multiple input tensors required as per tensorinfo_map"
            )
        return {name: value for name in specs}
    for name in specs:
        if name not in value:
            raise RequestError(
                f"Missing named input: {name} in '{COLUMNS}' object."
            )
    return {name: value[name] for name in specs}


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and not is_b64(value)


def answer(outputs: Arrays, is_row: bool) -> bytes:
    """The body of the answer to a request, in its format.

    Raises:
        RequestError: If outputs of different lengths are to be in rows.
    """
    values = {name: _value(name, x) for name, x in outputs.items()}
    only = next(iter(values.values())) if len(values) == 1 else None
    if not is_row:
        content = values if only is None else only
        return dumps({"outputs": content}, outputs.values())
    count = _common_length(outputs)
    if only is None:
        only = [
            {name: x[i] for name, x in values.items()} for i in range(count)
        ]
    return dumps({"predictions": only}, outputs.values())


def _common_length(outputs: Arrays) -> int:
    count = -1
    for name, array in outputs.items():
        if not array.ndim:
            raise RequestError(f"Tensor name: {name} has no shape information ")
        if count not in (-1, len(array)):
            raise RequestError(
                f"Tensor name: {name} has inconsistent batch size: "
                f"{len(array)} expecting: {count}"
            )
        count = len(array)
    return count


def _value(name: str, array: Any) -> Any:
    if array.dtype != object:
        return array
    return texts(array.tolist(), name.endswith("_bytes"))
