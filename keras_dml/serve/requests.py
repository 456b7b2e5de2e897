"""Requests of :predict: from JSON to tensors, and from tensors to JSON."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dml.serve.arrays import dumps, is_b64, tensor, texts, wrong
from keras_dml.serve.errors import RequestError
from keras_dml.serve.running import Arrays

ROWS, COLUMNS = "instances", "inputs"


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

    Args:
        document: The request.
        specs: The inputs by name.
        are_files: Whether strings are image files, which text cannot be.

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
                if not is_b64(file):
                    rule = 'hold image files as objects {"b64": "…"}'
                    raise wrong(name, rule, file)
    return is_row, inputs


def _of_rows(values: Any, specs: Mapping[str, tf.TensorSpec]) -> dict[str, Any]:
    """The values of each input, a list of those of the instances."""
    if not isinstance(values, list | np.ndarray) or not len(values):
        raise wrong(ROWS, "be a list of one item or more", values)
    if not _is_named(values[0]):
        return {_only(ROWS, specs): values}
    for row in values:
        if not _is_named(row) or row.keys() != specs.keys():
            raise _wrong_names(ROWS, "a list of objects", specs, row)
    return {name: [row[name] for row in values] for name in specs}


def _of_columns(
    values: Any, specs: Mapping[str, tf.TensorSpec]
) -> dict[str, Any]:
    """The values of each input."""
    if not _is_named(values):
        return {_only(COLUMNS, specs): values}
    if not specs.keys() <= values.keys():
        raise _wrong_names(COLUMNS, "an object", specs, values)
    return {name: values[name] for name in specs}


def _only(key: str, specs: Mapping[str, tf.TensorSpec]) -> str:
    """The name of the one input that needs none."""
    if len(specs) != 1:
        raise wrong(key, f"name the inputs {sorted(specs)}", "values alone")
    return next(iter(specs))


def _wrong_names(
    key: str, kind: str, specs: Mapping[str, tf.TensorSpec], received: Any
) -> RequestError:
    rule = f"be {kind} with the keys {sorted(specs)}"
    return wrong(key, rule, received)


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and not is_b64(value)


def answer(outputs: Arrays, is_row: bool) -> bytes:
    """The body of the answer to a request, in its format.

    Raises:
        RequestError: If outputs of different lengths are to be in rows.
    """
    values = {
        name: texts(x.tolist(), name.endswith("_bytes"))
        if x.dtype == object
        else x
        for name, x in outputs.items()
    }
    content: Any = values
    if len(values) == 1:
        [content] = values.values()
    if not is_row:
        return dumps({"outputs": content}, outputs.values())
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
    return dumps({"predictions": content}, outputs.values())
