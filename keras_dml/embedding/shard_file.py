"""Shards: Parquet files with the embeddings of one part of a source.

The columns of a shard are `id`, `row` (in the source), `label`, `name` (if
classes have names), further columns, and `embedding`, a list of fixed size.
Embeddings in int8 are multiples of `embedding_scale`; in binary, a number is 8
signs, the first in its highest bit. The metadata of the schema identifies the
run and the content. Pages have checksums.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128, xxh3_128_hexdigest

from keras_dml.embedding.manifest import FORMAT, BadExample, Run, ShardEntry
from keras_dml.utils.types import FloatArray, Labels, Precision, Rows

if TYPE_CHECKING:
    import pyarrow as pa

ID, ROW, LABEL, NAME, EMBEDDING, SCALE = RESERVED = (
    "id", "row", "label", "name", "embedding", "embedding_scale",
)  # fmt: skip
"""Reserved names of columns."""

_KEY = FORMAT.encode()

_NUMBERS = f"{EMBEDDING}.list.element"
"""The numbers of embeddings, as Parquet names them."""

_STEPS = 127
"""Of int8, up to the largest number of a row."""


@dataclass(frozen=True)
class ShardHead:
    """The metadata of a shard; see `ShardEntry`.

    Attributes:
        run: The id of its run.
        bad: The examples that could not be read.
        checksums: Checksums of the content; older shards have one per column.
        version: Version of the format.
        bytes: Size of the file, which does not contain this number.
    """

    run: str
    number: int
    first_row: int
    examples: int
    rows: int
    bad: tuple[BadExample, ...]
    checksums: Mapping[str, str] = field(default_factory=dict)
    version: int = 1
    bytes: int = 0

    @property
    def entry(self) -> ShardEntry:
        """What a manifest says of the shard."""
        about = self.number, self.first_row, self.examples, self.rows
        return ShardEntry(*about, self.bytes, self.digest)

    @property
    def digest(self) -> str:
        """Identifies the content."""
        return xxh3_128_hexdigest(json.dumps(dict(self.checksums)).encode())


def to_parquet(
    table: "pa.Table", head: ShardHead, embeddings: FloatArray, dtype: Precision
) -> tuple[ShardHead, bytes]:
    """A shard: its metadata, and the content of its file.

    Args:
        table: All other columns, n rows.
        head: The metadata; checksum and size are filled in.
        embeddings: (n, D), finite in the number format.
        dtype: The number format.
    """
    import pyarrow as pa
    from pyarrow import parquet

    numbers, scale = _stored(embeddings, dtype)
    if scale is not None:
        table = table.append_column(SCALE, pa.array(scale))
    flat = pa.array(numbers.reshape(-1))
    element = pa.field("element", flat.type, nullable=False)
    width = pa.list_(element, numbers.shape[1])
    content = xxh3_128(numbers.data)
    for column in table.columns:
        content.update(repr(column.to_pylist()).encode())
    table = table.append_column(
        pa.field(EMBEDDING, width, nullable=False),
        pa.FixedSizeListArray.from_arrays(flat, type=width),
    )
    head = replace(head, checksums={"content": content.hexdigest()})
    about = asdict(head)
    del about["bytes"]
    table = table.replace_schema_metadata({_KEY: json.dumps(about).encode()})
    sink = pa.BufferOutputStream()
    # Embeddings hardly compress: zstd makes them 12 % smaller, and reading them
    # takes half as long again.
    texts = [x.name for x in table.schema if pa.types.is_string(x.type)]
    parquet.write_table(
        table,
        sink,
        row_group_size=max(1, len(table)),
        compression=dict.fromkeys(texts, "zstd"),
        # Without one, Parquet stores integers of 8 bits in 32.
        use_dictionary=[NAME, *([_NUMBERS] if numbers.itemsize == 1 else [])],
        write_page_checksum=True,
    )
    written: bytes = sink.getvalue().to_pybytes()
    return replace(head, bytes=len(written)), written


def _stored(
    embeddings: FloatArray, dtype: Precision
) -> tuple[npt.NDArray[Any], FloatArray | None]:
    """What stands for embeddings, and in int8 the scale of each row."""
    numbers = np.ascontiguousarray(embeddings, "float32")
    if dtype == "binary":
        return np.packbits(numbers > 0, axis=1), None
    if dtype != "int8":
        return numbers.astype(dtype, copy=False), None
    scale = np.abs(numbers).max(axis=1) / _STEPS
    steps = numbers / np.where(scale > 0, scale, 1)[:, None]
    return np.rint(steps).astype(np.int8), scale


def read_head(file: Any) -> ShardHead:
    """The metadata of a shard; only the end of the open file is read.

    Raises:
        ValueError: If the file is truncated, or is not a shard.
    """
    return _opened(file)[1]


def _opened(file: Any) -> tuple[Any, ShardHead]:
    from pyarrow import ArrowException, parquet

    try:
        opened = parquet.ParquetFile(file, page_checksum_verification=True)
    except (ArrowException, OSError) as error:
        raise ValueError(
            f"it is truncated or not a Parquet file: {error}"
        ) from None
    metadata = opened.schema_arrow.metadata or {}
    try:
        plain = json.loads(metadata[_KEY])
        bad = tuple(BadExample(**x) for x in plain.pop("bad"))
        head = ShardHead(**plain, bad=bad)
    except (KeyError, TypeError, ValueError):
        raise ValueError("it is a Parquet file, but not a shard") from None
    _check_types(opened.schema_arrow)
    if opened.metadata.num_rows != head.rows:
        raise ValueError(
            f"it has {opened.metadata.num_rows} rows instead of {head.rows}"
        )
    return opened, head


def _check_types(schema: "pa.Schema") -> None:
    """Raises ValueError unless all columns have the expected types."""
    import pyarrow as pa

    types = {name: schema.field(name).type for name in schema.names}
    is_shard = (
        types.get(ID) == pa.string()
        and types.get(ROW) == pa.int64()
        and types.get(LABEL) in (pa.int64(), pa.list_(pa.int64()))
        and pa.types.is_fixed_size_list(
            found := types.get(EMBEDDING, pa.null())
        )
        and found.value_type
        in (pa.float32(), pa.float16(), pa.int8(), pa.uint8())
        and (SCALE in types) == (found.value_type == pa.int8())
    )
    if not is_shard:
        raise ValueError("one of its columns is missing or of a wrong type")


class ShardTable:
    """Columns of a shard in an open file, by default all; pages are verified.

    Raises:
        ValueError: If the shard is damaged.
    """

    def __init__(self, file: Any, columns: Sequence[str] | None = None) -> None:
        from pyarrow import ArrowException

        opened, self.head = _opened(file)
        try:
            self._table = opened.read(columns)
        except (ArrowException, OSError) as error:
            raise ValueError(f"it cannot be read: {error}") from None

    def embeddings(self, dim: int) -> FloatArray:
        """(n, D) float32, for D dimensions."""
        column = self._table.column(EMBEDDING).combine_chunks()
        numbers = column.flatten().to_numpy(zero_copy_only=False)
        numbers = numbers.reshape(-1, column.type.list_size)
        if numbers.dtype == np.uint8:
            signs = np.unpackbits(numbers, axis=1, count=dim)
            return (2 * signs.astype(np.float32) - 1) / np.float32(dim**0.5)
        embeddings = np.array(numbers, np.float32)
        if numbers.dtype == np.int8:
            embeddings *= self._table.column(SCALE).to_numpy()[:, None]
        return embeddings

    @property
    def ids(self) -> list[str]:
        """The ids of the rows in the source."""
        found: list[str] = self._table.column(ID).to_pylist()
        return found

    def labels(self, run: Run) -> Labels | None:
        """(n,) int64, or (n, C) booleans, or None if they are not known."""
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
        """All other columns: the row in the source, names, further columns."""
        own = (ID, LABEL, EMBEDDING, SCALE)
        names = [x for x in self._table.column_names if x not in own]
        return {x: self._table.column(x).to_pylist() for x in names}
