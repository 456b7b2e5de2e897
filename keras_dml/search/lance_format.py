"""What LanceDB has: Arrow tables of rows, and indexes."""

import json
from typing import Any

import numpy as np

from keras_dml.search.expressions import widest
from keras_dml.search.gallery import Block
from keras_dml.search.kinds import Kind
from keras_dml.search.lance_language import OWN, physical
from keras_dml.search.state import State
from keras_dml.search.table import Found, Types
from keras_dml.utils.types import FloatArray

STATE = "keras_dml"

_PARTITION = 2**20
"""The largest number of vectors in one HNSW graph."""


def schema(state: State) -> Any:
    """The columns of a new table."""
    import pyarrow as arrow

    # One that was begun says so by an empty state.
    begun = {STATE: ""}
    fields = [arrow.field("id", arrow.int64(), nullable=False, metadata=begun)]
    if state.keys is not None:
        kind = arrow.string() if state.keys == "str" else arrow.int64()
        fields.append(arrow.field("key", kind, nullable=False))
    vector = arrow.list_(arrow.float32(), state.dim)
    fields.append(arrow.field("vector", vector, nullable=False))
    return arrow.schema(fields)


def new_columns(there: Any, columns: Types) -> list[Any]:
    """Fields that a table lacks; ValueError if it has others in their place."""
    import pyarrow as arrow

    result = []
    for name, types in columns.items():
        if not types:
            continue
        field = arrow.field(physical(name), _type_of(name, types))
        place = there.get_field_index(field.name)
        if place < 0:
            result.append(field)
        elif there.field(place).type != field.type:
            raise _refusal(
                name, types, f", which has the type {there.field(place).type}"
            )
    return result


def _type_of(name: str, types: set[type]) -> Any:
    """The type of a column that holds values of some types."""
    import pyarrow as arrow

    if types <= {bool, int, float} or len(types) == 1:
        return {
            float: arrow.float64(), int: arrow.int64(), bool: arrow.bool_(),
            str: arrow.string(), list: arrow.string(),  # Of JSON.
        }[widest(types)]  # fmt: skip
    raise _refusal(name, types, "")


def _refusal(name: str, types: set[type], where: str) -> ValueError:
    names = " and ".join(sorted(x.__name__ for x in types))
    return ValueError(
        "`columns` of an Index in LanceDB must each hold values of one type: "
        f"text, numbers, booleans or lists. Received: {names} in the column "
        f"{name!r}{where}. Use an index in a folder to mix types."
    )


def batch(block: Block, there: Any) -> Any:
    """Rows as an Arrow table of a schema."""
    import pyarrow as arrow

    flat = arrow.array(block.vectors.reshape(-1))
    width = block.vectors.shape[1]
    given = {physical(name): x for name, x in block.columns.items()}
    arrays = []
    for field in there:
        if field.name == "vector":
            array = arrow.FixedSizeListArray.from_arrays(flat, width)
        elif field.name in OWN:
            values = block.ids if field.name == "id" else block.keys
            array = arrow.array(values, field.type)
        else:
            values = given.get(field.name) or [None] * len(block)
            array = arrow.array(list(map(_plain, values)), field.type)
        arrays.append(array)
    return arrow.table(arrays, schema=there)


def fields(there: Any, columns: Types, vectors: bool) -> list[str]:
    """Names of what is read of a table."""
    wanted = [*OWN[: 2 + vectors], *map(physical, columns)]
    return [name for name in wanted if name in there.names]


def block(found: Any, columns: Types) -> Block:
    """Rows of an Arrow table."""
    names = set(found.schema.names)
    keys = found["key"].to_pylist() if "key" in names else None
    values: dict[str, list[Any]] = {}
    for name, types in columns.items():
        field = physical(name)
        listed = found[field].to_pylist() if field in names else None
        if listed and types == {list}:
            listed = [None if x is None else json.loads(x) for x in listed]
        values[name] = listed or [None] * len(found)
    return Block(found["id"].to_numpy(), _vectors(found), values, keys)


def by_query(found: Any, count: int, shift: float) -> list[Found]:
    """What was found for each query; scores are `shift` less distances."""
    ids, vectors = found["id"].to_numpy(), _vectors(found)
    scores = shift - found["_distance"].to_numpy().astype(np.float64)
    if "query_index" not in found.schema.names:
        return [(ids, scores, vectors)]
    which = found["query_index"].to_numpy()
    kept = [which == query for query in range(count)]
    return [(ids[x], scores[x], vectors[x]) for x in kept]


def _vectors(found: Any) -> FloatArray:
    if "vector" not in found.schema.names:
        return np.empty((len(found), 0), np.float32)
    width = found.schema.field("vector").type.list_size
    column = found["vector"].combine_chunks()
    flat: FloatArray = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(-1, width)


def vector_index(kind: Kind, count: int, distance: str) -> Any:
    """How the index of a kind is built, of some vectors."""
    import lancedb.index as library

    options: dict[str, Any] = {"distance_type": distance}
    if kind.links:
        partitions = 1 + count // _PARTITION
        return library.HnswFlat(
            num_partitions=partitions, m=kind.links, **options
        )
    if kind.parts:
        options["num_sub_vectors"] = kind.parts
    maker = {"Flat": "IvfFlat", "SQ8": "IvfSq", "PQ": "IvfPq"}[kind.code]
    return getattr(library, maker)(num_partitions=kind.lists, **options)


def build_scalars(table: Any, there: set[str]) -> None:
    """Builds what finds rows by ids and keys, as far as it is not there."""
    import lancedb.index as library

    for name in {"id", "key"} & set(table.schema.names) - there:
        table.create_index(name, config=library.BTree())


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value
