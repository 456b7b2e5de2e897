"""What Milvus has: rows with JSON, expressions, kinds of indexes."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_dml.search.expressions import widest
from keras_dml.search.gallery import Block
from keras_dml.search.kinds import Kind
from keras_dml.search.state import State
from keras_dml.search.table import Found, Types

Fields = Mapping[str, str]
"""Types of the columns that have fields of their own, by name."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")

_KEPT: dict[str, set[type]] = {
    "VARCHAR": {str}, "DOUBLE": {float}, "INT64": {int}, "BOOL": {bool},
}  # fmt: skip

SENT = 2**24
"""Bytes of vectors that are sent at a time."""

EF = 2**15
"""The largest number of candidates of HNSW."""

CHUNK = 60_000
"""Characters of a text; Milvus takes 65,535 bytes."""


def notes_schema(library: Any) -> Any:
    """The collection of a state: a text in parts."""
    schema, kinds = library.MilvusClient.create_schema(), library.DataType
    schema.add_field("part", kinds.INT64, is_primary=True)
    # A collection has a vector.
    schema.add_field("vector", kinds.FLOAT_VECTOR, dim=2)
    schema.add_field("text", kinds.VARCHAR, max_length=65535)
    return schema


def rows_schema(library: Any, state: State) -> Any:
    """The collection of rows, by their keys, or ids without."""
    schema, kinds = library.MilvusClient.create_schema(), library.DataType
    if state.keys == "str":
        options = {"max_length": 65535, "is_primary": True}
        schema.add_field("key", kinds.VARCHAR, **options)
    elif state.keys == "int":
        schema.add_field("key", kinds.INT64, is_primary=True)
    schema.add_field("id", kinds.INT64, is_primary=state.keys is None)
    schema.add_field("vector", kinds.FLOAT_VECTOR, dim=state.dim)
    schema.add_field("columns", kinds.JSON)
    for name, types in state.types.items():
        # Fields are filtered faster than JSON.
        if (kind := field_type(types)) and _NAME.fullmatch(name):
            options = {"max_length": 65535} if kind == "VARCHAR" else {}
            schema.add_field(f"c_{name}", kinds[kind], nullable=True, **options)
    return schema


def field_type(types: set[type]) -> str:
    """The type of a field for values of some types; empty for none."""
    if types == {str}:
        return "VARCHAR"
    if not types or not types <= {bool, int, float}:
        return ""
    return {float: "DOUBLE", int: "INT64", bool: "BOOL"}[widest(types)]


def index_of(kind: Kind, metric: str) -> tuple[str, str, dict[str, int]]:
    """What Milvus calls a kind of index and a metric, and its parameters."""
    if kind.links:
        return "HNSW", metric, {"M": kind.links, "efConstruction": 100}
    if not kind.lists:
        return "FLAT", metric, {}
    parameters = {"nlist": kind.lists}
    if kind.parts:
        parameters["m"] = kind.parts
    return f"IVF_{kind.code.upper()}", metric, parameters


def rows(block: Block, fields: Fields) -> Iterator[dict[str, Any]]:
    """Rows as Milvus takes them."""
    for i, (row_id, vector) in enumerate(
        zip(block.ids.tolist(), block.vectors, strict=True)
    ):
        values = {name: x[i] for name, x in block.columns.items()}
        text = json.dumps(values).encode()
        if len(text) > CHUNK:
            raise ValueError(
                "`columns` of an Index in Milvus must take up at most "
                f"{CHUNK:,} bytes per row. Received: {len(text):,} bytes in "
                f"row {row_id}. Use LanceDB or an index in a folder, which "
                "have no such limit."
            )
        row = {"id": row_id, "vector": vector}
        row |= {f"c_{name}": values.pop(name, None) for name in fields}
        row["columns"] = {k: x for k, x in values.items() if x is not None}
        yield row if block.keys is None else {**row, "key": block.keys[i]}


def block(
    found: list[dict[str, Any]], columns: Types, fields: Fields, has_keys: bool
) -> Block:
    """Rows that Milvus returned."""
    ids = np.array([x["id"] for x in found], np.int64)
    vectors = np.array([x.get("vector", []) for x in found], np.float32)
    width = vectors.shape[1] if len(found) else 0
    values = {
        name: [x[f"c_{name}"] for x in found]
        if name in fields
        else [x["columns"].get(name) for x in found]
        for name in columns
    }
    keys = [x["key"] for x in found] if has_keys else None
    return Block(ids, vectors.reshape(len(ids), width), values, keys)


def check_types(fields: Fields, columns: Types) -> None:
    """ValueError if a field cannot hold the values of its column."""
    for name, types in columns.items():
        kind = fields.get(name)
        if kind and field_type(types | _KEPT[kind]) != kind:
            names = " and ".join(sorted(x.__name__ for x in types))
            raise ValueError(
                "`columns` of an Index in Milvus must keep the type that they "
                f"were pushed with. Received: {names} in the column {name!r} "
                f"of type {kind}. Use an index in a folder to change types."
            )


def found(hits: Any, sign: float, dim: int) -> Found:
    entities = [hit["entity"] for hit in hits]
    scores = sign * np.array([hit["distance"] for hit in hits], np.float64)
    ids = np.array([x["id"] for x in entities], np.int64)
    vectors = np.array([x["vector"] for x in entities], np.float32)
    return ids, scores, vectors.reshape(-1, dim)
