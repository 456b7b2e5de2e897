"""Shards: Parquet files with the embeddings of some rows of a source.

A shard has the columns `id`, `row` (in the source), `label`, where classes
have names `name`, further ones, and `embedding`, a list of fixed size. What
run it is of, and checksums, are metadata of its schema.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from xxhash import xxh3_128, xxh3_128_hexdigest

from keras_dml.embedding.manifest import FORMAT, BadExample, Run
from keras_dml.utils.types import FloatArray, Labels, Rows

if TYPE_CHECKING:
    import pyarrow as pa

ID, ROW, LABEL, NAME, EMBEDDING = RESERVED = (
    "id", "row", "label", "name", "embedding",
)  # fmt: skip
"""Columns that have a meaning here."""

_KEY = FORMAT.encode()


@dataclass(frozen=True)
class ShardHead:
    """What a shard says of itself.

    Attributes:
        run: The id of its run.
        number: Which shard of the run it is.
        first_row: The first row of its part of the source.
        examples: How many rows this part has.
        rows: How many of them could be embedded.
        bad: The others.
        checksums: Of columns, by their names.
        version: Of this format.
    """

    run: str
    number: int
    first_row: int
    examples: int
    rows: int
    bad: tuple[BadExample, ...]
    checksums: Mapping[str, str] = field(default_factory=dict)
    version: int = 1

    @property
    def digest(self) -> str:
        """Checksum of what is in the shard."""
        return xxh3_128_hexdigest(json.dumps(dict(self.checksums)).encode())


def schema_of(run: Run, names: bool, columns: "pa.Schema") -> "pa.Schema":
    """The columns of all shards of a run.

    Args:
        run: The run.
        names: Whether classes have names.
        columns: The further columns.
    """
    import pyarrow as pa

    label = pa.int64()
    if run.labels == "several":
        label = pa.list_(pa.int64())
    number = pa.float16() if run.dtype == "float16" else pa.float32()
    element = pa.field("element", number, nullable=False)
    fields = [
        pa.field(ID, pa.string(), nullable=False),
        pa.field(ROW, pa.int64(), nullable=False),
        pa.field(LABEL, label),
        *([pa.field(NAME, pa.string())] if names else []),
        *columns,
        pa.field(EMBEDDING, pa.list_(element, run.dim), nullable=False),
    ]
    return pa.schema(fields)


def to_parquet(
    schema: "pa.Schema",
    head: ShardHead,
    embeddings: FloatArray,
    columns: Mapping[str, Any],
) -> tuple[ShardHead, bytes]:
    """A shard: what it says of itself, and the content of its file.

    Args:
        schema: As `schema_of` makes it.
        head: What it is; its checksums are filled in.
        embeddings: (n, D), finite in the type of the schema.
        columns: All other columns; without the labels they are null.
    """
    import pyarrow as pa
    from pyarrow import parquet

    width = schema.field(EMBEDDING).type
    numbers = np.ascontiguousarray(
        embeddings, width.value_type.to_pandas_dtype()
    )
    flat = pa.array(numbers.reshape(-1))
    arrays = {
        name: pa.array(values, schema.field(name).type)
        for name, values in columns.items()
    }
    arrays[EMBEDDING] = pa.FixedSizeListArray.from_arrays(flat, type=width)
    if LABEL not in arrays:
        arrays[LABEL] = pa.nulls(len(embeddings), schema.field(LABEL).type)
    table = pa.table([arrays[x.name] for x in schema], schema=schema)
    checksums = {name: _checksum(table, name) for name in _checked(table)}
    head = replace(head, checksums=checksums)
    about = json.dumps(asdict(head)).encode()
    table = table.replace_schema_metadata({_KEY: about})
    sink = pa.BufferOutputStream()
    # Embeddings hardly compress: zstd makes them 12 % smaller, and reading
    # half as slow again.
    texts = [x.name for x in schema if pa.types.is_string(x.type)]
    parquet.write_table(
        table,
        sink,
        row_group_size=max(1, len(table)),
        compression=dict.fromkeys(texts, "zstd"),
        use_dictionary=[NAME],
        write_page_checksum=True,
    )
    return head, sink.getvalue().to_pybytes()


def _checked(table: "pa.Table") -> list[str]:
    return [x for x in (ID, ROW, LABEL, EMBEDDING) if x in table.column_names]


def _checksum(table: "pa.Table", name: str) -> str:
    """Checksum of a column, whatever its parts are in memory."""
    hashed = xxh3_128()
    for part in _bytes_of(table, name):
        hashed.update(part)
    return hashed.hexdigest()


def _bytes_of(table: "pa.Table", name: str) -> Iterable[Any]:
    column = table.column(name)
    if name == EMBEDDING:
        yield np.ascontiguousarray(_numbers(table)).data
    elif name == ID:
        yield "\0".join(column.to_pylist()).encode()
    elif name == LABEL and column.null_count == len(column):
        yield b""
    elif name == LABEL and column.type != "int64":
        yield json.dumps(column.to_pylist()).encode()
    else:
        yield column.to_numpy().tobytes()


def _numbers(table: "pa.Table") -> FloatArray:
    """Embeddings as they are stored, (n, D)."""
    column = table.column(EMBEDDING)
    dim = column.type.list_size
    parts = [chunk.flatten().to_numpy() for chunk in column.chunks]
    if len(parts) == 1:
        numbers: FloatArray = parts[0].reshape(-1, dim)
        return numbers
    dtype = column.type.value_type.to_pandas_dtype()
    return np.concatenate([np.empty(0, dtype), *parts]).reshape(-1, dim)


def read_head(file: Any) -> ShardHead:
    """What a shard says of itself; reads the end of the file only.

    Args:
        file: It, open.

    Raises:
        ValueError: If it is cut off, or no shard of this format.
    """
    return _opened(file)[1]


def _opened(file: Any) -> tuple[Any, ShardHead]:
    from pyarrow import ArrowException, parquet

    try:
        opened = parquet.ParquetFile(file, page_checksum_verification=True)
    except (ArrowException, OSError) as error:
        raise ValueError(f"it is cut off, or no Parquet: {error}") from None
    metadata = opened.schema_arrow.metadata or {}
    try:
        plain = json.loads(metadata[_KEY])
        bad = tuple(BadExample(**x) for x in plain.pop("bad"))
        head = ShardHead(**plain, bad=bad)
    except (KeyError, TypeError, ValueError):
        raise ValueError("it is Parquet of something else") from None
    _check_types(opened.schema_arrow)
    if opened.metadata.num_rows != head.rows:
        raise ValueError(
            f"it has {opened.metadata.num_rows} rows, and was of {head.rows}"
        )
    return opened, head


def _check_types(schema: "pa.Schema") -> None:
    """Raises ValueError unless columns are of the types that they have."""
    import pyarrow as pa

    numbers = (pa.float32(), pa.float16())
    types = {
        ID: (pa.string(),),
        ROW: (pa.int64(),),
        LABEL: (pa.int64(), pa.list_(pa.int64())),
    }
    for name, allowed in types.items():
        if name not in schema.names or schema.field(name).type not in allowed:
            raise ValueError(f"its column {name} is missing or of another type")
    found = EMBEDDING in schema.names and schema.field(EMBEDDING).type
    if not (
        found
        and pa.types.is_fixed_size_list(found)
        and found.value_type in numbers
    ):
        raise ValueError("its embeddings are missing or of another type")


class ShardTable:
    """Columns of a shard that were read, and checked.

    Args:
        file: The shard, open.
        columns: Which columns to read; None for all.

    Raises:
        ValueError: If it is damaged or was edited.
    """

    def __init__(self, file: Any, columns: Sequence[str] | None = None) -> None:
        from pyarrow import ArrowException

        opened, self.head = _opened(file)
        try:
            self._table = opened.read(columns)
        except (ArrowException, OSError) as error:
            raise ValueError(f"it cannot be read: {error}") from None
        for name in _checked(self._table):
            if _checksum(self._table, name) != self.head.checksums.get(name):
                raise ValueError(
                    f"its column {name} was edited, or is damaged: the "
                    "checksum does not fit"
                )

    @property
    def embeddings(self) -> FloatArray:
        """(n, D) float32."""
        return np.array(_numbers(self._table), np.float32)

    @property
    def ids(self) -> list[str]:
        """What the source calls the rows."""
        found: list[str] = self._table.column(ID).to_pylist()
        return found

    def labels(self, run: Run) -> Labels | None:
        """(n,) int64, or (n, C) booleans, or None where they are unknown."""
        if run.labels == "none":
            return None
        column = self._table.column(LABEL).combine_chunks()
        if run.labels == "one":
            labels: Rows = column.to_numpy(zero_copy_only=False)
            return labels.astype(np.int64)
        found = np.zeros((len(column), run.num_labels), bool)
        counts = column.value_lengths().to_numpy(zero_copy_only=False)
        rows = np.repeat(np.arange(len(column)), counts)
        found[rows, column.flatten().to_numpy(zero_copy_only=False)] = True
        return found

    @property
    def columns(self) -> dict[str, list[Any]]:
        """All other columns: the row in the source, names, further ones."""
        own = (ID, LABEL, EMBEDDING)
        names = [x for x in self._table.column_names if x not in own]
        return {x: self._table.column(x).to_pylist() for x in names}
