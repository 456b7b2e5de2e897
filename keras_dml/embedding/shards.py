"""EmbeddingShards: a folder of embeddings, read one shard at a time."""

import functools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_128_hexdigest

from keras_dml.embedding.manifest import (
    MANIFEST,
    BadExample,
    Manifest,
    ShardEntry,
)
from keras_dml.embedding.shard_file import (
    EMBEDDING,
    ID,
    LABEL,
    NAME,
    ROW,
    SCALE,
    ShardTable,
)
from keras_dml.embedding.storage import EXTRA, Folder, Storage
from keras_dml.model.identity import ModelIdentity
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.files import atomic_file
from keras_dml.utils.lazy_rows import ArrayRows
from keras_dml.utils.types import FloatArray, Labels, Precision


@dataclass(frozen=True)
class Shard:
    """The rows of one shard.

    Attributes:
        rows: The range of these n rows among all rows of the folder.
        embeddings: (n, D) float32.
        ids: The ids of the rows in the source.
        labels: Classes, (n,) int64; or several per row, (n, C) booleans; or
            None if they are not known.
        columns: Further columns by name, n values each. One of them is "row",
            the row in the source.
    """

    rows: slice
    embeddings: FloatArray
    ids: list[str]
    labels: Labels | None
    columns: dict[str, list[Any]]


class ShardRows(ArrayRows):
    """The embeddings of a folder, mapped from a file.

    Another process maps the same file or, on another machine, reads the shards
    again.
    """

    def __init__(self, shards: "EmbeddingShards") -> None:
        super().__init__(shards.array())
        self._folder = shards.folder

    def __setstate__(self, state: dict[str, Any]) -> None:
        try:
            super().__setstate__(state)
        except FileNotFoundError:
            ShardRows.__init__(self, EmbeddingShards(state["_folder"]))


@functools.cache
def _temporary() -> "tempfile.TemporaryDirectory[str]":
    """A folder of this process, which is removed when it ends."""
    return tempfile.TemporaryDirectory(prefix="keras_dml-")


class EmbeddingShards:
    """A folder of embeddings, as written by `embed_shards`.

    Its rows are the examples that could be read, in the order of the source.
    They are read one shard at a time: iterate over the shards, or map all of
    them into memory with `array`.

    Args:
        folder: A path or a URL, such as s3://bucket/gallery.
        verify: Whether to read everything now and verify checksums. Otherwise,
            every shard is verified when it is read.

    Attributes:
        folder: The folder, as a string.

    Raises:
        FileNotFoundError: If there are no embeddings, or a shard is missing.
        ImportError: If pyarrow, or a package for such URLs, is missing.
        ValueError: If the run is not complete, a shard is damaged or belongs to
            another run, or the format is of a later version.

    Example:

    ```python
    shards = EmbeddingShards("gallery")
    for shard in shards:
        print(shard.rows, shard.embeddings.shape, shard.ids[0])
    ```
    """

    def __init__(self, folder: Folder, *, verify: bool = False) -> None:
        import_extra("EmbeddingShards", "pyarrow", EXTRA)
        self._storage = Storage(folder)
        self.folder = self._storage.name
        self._manifest = _read_manifest(self._storage)
        _check_files(self._storage, self._manifest)
        if verify:
            for entry in self._manifest.shards:
                self._read(entry, None)

    def __len__(self) -> int:
        return sum(entry.rows for entry in self._manifest.shards)

    @property
    def dim(self) -> int:
        """Dimension of the embeddings, D."""
        return self._manifest.run.dim

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D)."""
        return len(self), self.dim

    @property
    def dtype(self) -> Precision:
        """Number format in which they are stored; they are read as float32."""
        return self._manifest.run.dtype

    @property
    def run_id(self) -> str:
        """Identifies the run that made the embeddings."""
        return self._manifest.run.id

    @cached_property
    def digest(self) -> str:
        """Checksum of all rows."""
        digests = [entry.digest for entry in self._manifest.shards]
        return xxh3_128_hexdigest("".join(digests).encode())

    @property
    def model(self) -> ModelIdentity | None:
        """The model that made the embeddings; None if it is not known."""
        return self._manifest.run.model

    @property
    def names(self) -> Mapping[int, str]:
        """Names of classes by label."""
        return self._manifest.names

    @property
    def bad(self) -> tuple[BadExample, ...]:
        """Examples of the source that could not be read and have no row."""
        return self._manifest.bad

    @property
    def images_per_second(self) -> float:
        """Speed of the call that completed the run, including start-up."""
        return self._manifest.images_per_second

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return len(self._manifest.shards)

    @cached_property
    def ids(self) -> list[str]:
        """The ids of all rows in the source, in memory."""
        return [name for _, table in self._tables([ID]) for name in table.ids]

    @cached_property
    def labels(self) -> Labels | None:
        """Classes of all rows, (N,) int64, or (N, C) booleans, or None."""
        run = self._manifest.run
        if run.labels == "none":
            return None
        found = [table.labels(run) for _, table in self._tables([LABEL])]
        return np.concatenate([x for x in found if x is not None])

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """Further columns of all rows by name, in memory.

        These include "row", the row in the source, and "name" if classes have
        names.
        """
        run = self._manifest.run
        named = [NAME] if self.names and run.labels != "none" else []
        wanted = [ROW, *named, *run.columns]
        columns: dict[str, list[Any]] = {name: [] for name in wanted}
        for _, table in self._tables(wanted):
            for name, values in table.columns.items():
                columns[name] += values
        return columns

    def __iter__(self) -> Iterator[Shard]:
        for rows, table in self._tables(None):
            labels = table.labels(self._manifest.run)
            yield Shard(
                rows,
                table.embeddings(self.dim),
                table.ids,
                labels,
                table.columns,
            )

    def embeddings(self) -> Iterator[FloatArray]:
        """The embeddings alone, (n, D) float32 for each shard."""
        for _, table in self._tables([EMBEDDING, SCALE]):
            yield table.embeddings(self.dim)

    def array(self, cache: str | os.PathLike[str] | None = None) -> FloatArray:
        """All embeddings as a read-only `np.memmap` of a file, (N, D) float32.

        The file, of 4·N·D bytes, is written only once, atomically, with one
        shard at a time in memory.

        Args:
            cache: Folder for the file on a local disk, where later calls and
                other processes reuse it. By default, a temporary folder that is
                removed when this process ends.

        Raises:
            ValueError: If there are no rows, or a shard is damaged.
            OSError: If there is not enough space for the file.
        """
        count, dim = self.shape
        if not count:
            raise ValueError(
                f"There must be at least one embedding in {self.folder!r} to "
                f"be mapped. Received: none; {len(self.bad)} examples could "
                "not be read."
            )
        folder = Path(_temporary().name if cache is None else cache)
        path = folder.expanduser() / f"embeddings-{self.digest}.float32"
        size = 4 * count * dim
        if not path.is_file() or path.stat().st_size != size:
            self._write(path, size)
        return np.memmap(path, np.float32, "r", shape=(count, dim))

    def _write(self, path: Path, size: int) -> None:
        try:
            with atomic_file(path) as partial, partial.open("wb") as file:
                for embeddings in self.embeddings():
                    file.write(embeddings.data)
        except FileNotFoundError:  # A shard is missing, and the error names it.
            raise
        except OSError as error:
            raise OSError(
                error.errno,
                f"The file for mapping the embeddings of {self.folder!r}, of "
                f"{size:,} bytes, cannot be written: {error.strerror}. Set "
                "`cache` or TMPDIR to a folder with enough space",
                str(path),
            ) from error

    def _tables(
        self, columns: Sequence[str] | None
    ) -> Iterator[tuple[slice, ShardTable]]:
        first = 0
        for entry in self._manifest.shards:
            rows = slice(first, first + entry.rows)
            yield rows, self._read(entry, columns)
            first = rows.stop

    def _read(
        self, entry: ShardEntry, columns: Sequence[str] | None
    ) -> ShardTable:
        try:
            with self._storage.open(entry.name) as file:
                table = ShardTable(file, columns)
            if table.head.run != self.run_id:
                raise ValueError("it belongs to another run")
            if table.head.digest != entry.digest:
                raise ValueError("it is not the one listed in the manifest")
        except ValueError as error:
            raise ValueError(
                f"The shard {entry.name} of {self.folder!r} must be unchanged "
                f"since it was written. Received: {error}. Remove it and "
                f"{MANIFEST}, and embed again: the other shards are kept."
            ) from None
        return table

    def __repr__(self) -> str:
        count, dim = self.shape
        return (
            f"EmbeddingShards({count:,} × {dim} {self.dtype} in "
            f"{self.num_shards} shards, {len(self.bad)} bad)"
        )


def _read_manifest(storage: Storage) -> Manifest:
    try:
        text = storage.read(MANIFEST)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{storage.name!r} must be a folder of embeddings written by "
            f"`keras-dml embed`. Received: a folder without {MANIFEST}."
        ) from None
    manifest = Manifest.from_json(text, f"{MANIFEST} in {storage.name!r}")
    if not manifest.shards:
        there = sum(name.endswith(".parquet") for name in storage.sizes())
        raise ValueError(
            f"The embeddings in {storage.name!r} must be complete. Received: "
            f"an unfinished run with {there} shards. Embed again with the "
            "same arguments to continue."
        )
    return manifest


def _check_files(storage: Storage, manifest: Manifest) -> None:
    """Raises an error if a shard is missing or has the wrong size."""
    sizes = storage.sizes()
    odd = [x for x in manifest.shards if sizes.get(x.name) != x.bytes]
    if not odd:
        return
    found = sizes.get(odd[0].name)
    kind = FileNotFoundError if found is None else ValueError
    what = (
        "is missing"
        if found is None
        else f"was truncated or replaced: {found:,} bytes"
    )
    raise kind(
        f"{storage.name!r} must have all {len(manifest.shards)} shards, of the "
        f"sizes that {MANIFEST} lists. Received: {len(odd)} others; "
        f"{odd[0].name}, of {odd[0].bytes:,} bytes, {what}. Restore them, or "
        f"remove {MANIFEST} and embed again: the other shards are kept."
    )
