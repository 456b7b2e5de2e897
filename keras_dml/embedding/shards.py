"""EmbeddingShards: a folder of embeddings, read one shard at a time.

A shard is a Parquet file with the embeddings of consecutive examples. Its
columns are `id`, `row` (in the source), `label`, `name` (if classes have
names), further columns, and `embedding`, a list of fixed size. The metadata of
its schema names the run that wrote it, and `_manifest.json` describes the run.
"""

import contextlib
import functools
import math
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from annotated_types import Ge, Le

from keras_dml.data import Examples, ImageSet
from keras_dml.model.identity import ModelIdentity
from keras_dml.utils.files import (
    Document,
    atomic_file,
    differences,
    listed,
    one_at_a_time,
    sweep,
    write_atomically,
)
from keras_dml.utils.types import FloatArray, Labels, Rows

MANIFEST = "_manifest.json"

FILES = re.compile(rf"shard-\d{{5,}}\.parquet|{re.escape(MANIFEST)}")
"""Names of the files that a folder consists of."""

ID, ROW, LABEL, NAME, EMBEDDING = "id", "row", "label", "name", "embedding"
"""Names of columns."""

RUN_KEY = b"keras_dml.run"
"""The key of a shard's metadata that holds the id of its run."""

ShardDtype: TypeAlias = Literal["float32", "float16"]
"""Number formats of stored embeddings."""

Folder: TypeAlias = str | os.PathLike[str]
"""A path, or a URL that fsspec supports, such as s3://bucket/gallery."""


def is_url(name: str) -> bool:
    return "://" in name


def absolute(name: Folder) -> str:
    """A path for any working directory; URLs are unchanged."""
    text = os.fspath(name)
    return text if is_url(text) else os.path.abspath(os.path.expanduser(text))


class Storage:
    """A folder whose files are written aside and renamed.

    Errors of fsspec say which package it needs for a URL.
    """

    def __init__(self, folder: Folder) -> None:
        import fsspec

        self.name = os.fspath(folder)
        path = absolute(folder)
        self._is_local = not is_url(path)
        url = f"file://{path}" if self._is_local else path
        self._files, self._root = fsspec.url_to_fs(url)

    def names(self) -> set[str]:
        """Names of the visible files and folders directly in the folder."""
        self._files.invalidate_cache()  # Another writer may have added files.
        try:
            paths = self._files.ls(self._root, detail=False)
        except FileNotFoundError:
            return set()
        names = {PurePosixPath(path).name for path in paths}
        return {name for name in names if not name.startswith(".")}

    def open(self, name: str) -> Any:
        """Opens a file for reading, as a context manager; or OSError."""
        return self._files.open(self._path(name), "rb")

    def write(self, name: str, content: bytes) -> None:
        """Writes a file whole or not at all; OSError if there is no space."""
        path = self._path(name)
        if self._is_local:
            write_atomically(path, content)
            return
        aside = self._path(f".{name}.{secrets.token_hex(8)}")
        try:
            self._files.pipe_file(aside, content)
            self._files.mv(aside, path)
        except NotImplementedError:
            raise OSError(f"{self.name!r} is read-only") from None

    def remove(self, name: str) -> None:
        self._files.rm_file(self._path(name))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Locks a folder on a disk; BlockingIOError if it is locked.

        Incomplete files of writers that were killed are removed.
        """
        if not self._is_local:
            yield
            return
        with one_at_a_time(self._root, "embedding"):
            sweep(self._root)
            yield

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def with_paths(images: ImageSet, paths: Iterable[str]) -> ImageSet:
    about = images.labels, images.names, images.ids, images.boxes
    return ImageSet(list(paths), *about)


@contextlib.contextmanager
def downloaded(examples: Examples) -> Iterator[Examples]:
    """Has the images of a set that are at URLs in files meanwhile."""
    paths = (isinstance(examples, ImageSet) and examples.paths) or ()
    urls = list(filter(is_url, paths))
    if not isinstance(examples, ImageSet) or not urls:
        yield examples
        return
    import fsspec

    with tempfile.TemporaryDirectory(prefix="keras_dml-") as folder:
        files = {
            url: f"{folder}/{number}{PurePosixPath(url).suffix[:8]}"
            for number, url in enumerate(urls)
        }
        try:
            for protocol in {url.partition("://")[0] for url in urls}:
                batch = [x for x in files if x.startswith(f"{protocol}://")]
                file_system, _ = fsspec.url_to_fs(batch[0])
                file_system.get(batch, [files[url] for url in batch])
        except Exception as error:  # Every file system has its own errors.
            raise OSError(
                "Images could not be downloaded: "
                f"{type(error).__name__}: {error}"
            ) from error
        try:
            yield with_paths(examples, (files.get(x, x) for x in paths))
        except ValueError as error:  # It names a local file.
            message = str(error)
            for url, file in files.items():
                message = message.replace(file, url)
            raise ValueError(message) from error


@dataclass(frozen=True)
class Run:
    """Everything that the embeddings of a folder depend on.

    `examples` is their number, N, and `names` are those of classes by label.
    """

    id: str  # A random name, which is also in each shard.
    model: ModelIdentity | None
    fingerprint: str  # Of the examples, their ids, labels and columns.
    examples: Annotated[int, Ge(1)]
    rows_per_shard: Annotated[int, Ge(1)]
    dim: Annotated[int, Ge(1), Le(2**18)]
    dtype: ShardDtype
    num_labels: Annotated[int, Ge(0)]  # C if examples can have several, or 0.
    columns: tuple[str, ...]  # All but the embedding.
    names: Mapping[int, str]

    @property
    def shards(self) -> dict[str, slice]:
        """The rows of each shard, by the name of its file."""
        starts = range(0, self.examples, self.rows_per_shard)
        return {
            f"shard-{number:05d}.parquet": slice(
                start, min(start + self.rows_per_shard, self.examples)
            )
            for number, start in enumerate(starts)
        }

    def difference(self, other: "Run") -> str:
        """How another run differs from this one; empty if it does not."""
        if self.model and other.model:
            if difference := self.model.difference(other.model):
                return f"a model {difference}"
        before, after = (
            {
                **vars(x),
                "id": "",
                "model": "recorded" if x.model else "not recorded",
            }
            for x in (self, other)
        )
        return listed(differences(before, after))

    @staticmethod
    def read(storage: Storage) -> "Run":
        """Reads the run of a folder; ValueError if its manifest is damaged."""
        try:
            with storage.open(MANIFEST) as file:
                return DOCUMENT.read(file.read())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{storage.name!r} must be a folder of embeddings written by "
                f"`keras-dml embed`. Received: a folder without {MANIFEST}."
            ) from None
        except ValueError as error:
            hint = ""
            if getattr(error, "version", None) is not None:
                hint = " Use the version of keras_dml that wrote it."
            raise ValueError(
                f"{MANIFEST} in {storage.name!r} must be a manifest of "
                f"embeddings written by keras_dml. Received: {error}.{hint}"
            ) from None


DOCUMENT = Document(Run, "keras_dml.embedding")


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


@functools.cache
def _temporary_folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder that is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="keras_dml-")


class EmbeddingShards:
    """A folder of embeddings, as written by `embed_shards`.

    Its rows are the examples, in the order of the source. They are read one
    shard at a time: iterate over the shards, or map all of them into memory
    with `array`.

    Args:
        folder: A path or a URL, such as s3://bucket/gallery.

    Attributes:
        folder: The folder, as a string.
        run_id: Identifies the run that made the embeddings.
        model: The identity of the model that made them; None if not known.
        shape: (N, D).
        dim: D.
        dtype: Number format in which they are stored; they are read as float32.
        names: Names of classes by label.
        num_shards: Number of shards.

    Raises:
        FileNotFoundError: If there are no embeddings.
        ImportError: If a package for such URLs is missing.
        ValueError: If the run is not complete, or the format is of another
            version; and when it is read, if a shard is damaged or belongs to
            another run.

    Example:

    ```python
    shards = EmbeddingShards("gallery")
    for shard in shards:
        print(shard.rows, shard.embeddings.shape, shard.ids[0])
    ```
    """

    def __init__(self, folder: Folder) -> None:
        self._storage = Storage(folder)
        self._run = run = Run.read(self._storage)
        self.folder, self.run_id = self._storage.name, run.id
        self.model, self.names = run.model, run.names
        self.shape = run.examples, run.dim
        self.dim, self.dtype = run.dim, run.dtype
        self.num_shards = len(run.shards)
        missing = {*run.shards} - self._storage.names()
        if missing:
            raise ValueError(
                f"The embeddings in {self.folder!r} must be complete. "
                f"Received: {self.num_shards - len(missing)} of "
                f"{self.num_shards} shards, without {min(missing)}. Embed "
                "again with the same arguments to continue."
            )

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def ids(self) -> list[str]:
        """The ids of all rows in the source, in memory."""
        parts = [table[ID].to_pylist() for _, table in self._tables([ID])]
        return [x for ids in parts for x in ids]

    @cached_property
    def labels(self) -> Labels | None:
        """Classes of all rows, (N,) int64, or (N, C) booleans, or None."""
        if LABEL not in self._run.columns:
            return None
        tables = self._tables([LABEL])
        return np.concatenate([self._labels(table) for _, table in tables])

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """Further columns of all rows by name, in memory.

        These include "row", the row in the source, and "name" if classes have
        names.
        """
        import pyarrow as pa

        names = [x for x in self._run.columns if x not in (ID, LABEL)]
        parts = [table for _, table in self._tables(names)]
        return pa.concat_tables(parts).to_pydict()

    def __iter__(self) -> Iterator[Shard]:
        for rows, table in self._tables(None):
            has_labels = LABEL in table.column_names
            own = [x for x in (ID, LABEL, EMBEDDING) if x in table.column_names]
            yield Shard(
                rows,
                _embeddings(table),
                table[ID].to_pylist(),
                self._labels(table) if has_labels else None,
                table.drop_columns(own).to_pydict(),
            )

    def embeddings(self) -> Iterator[FloatArray]:
        """The embeddings alone, (n, D) float32 for each shard."""
        for _, table in self._tables([EMBEDDING]):
            yield _embeddings(table)

    def array(self, cache: str | os.PathLike[str] | None = None) -> FloatArray:
        """All embeddings as a read-only `np.memmap` of a file, (N, D) float32.

        The file, of 4·N·D bytes, is written only once, atomically, with one
        shard at a time in memory.

        Args:
            cache: Folder for the file on a local disk, where later calls and
                other processes reuse it. By default, a temporary folder that is
                removed when this process ends.

        Raises:
            ValueError: If a shard is damaged.
            OSError: If there is not enough space for the file.
        """
        folder = Path(_temporary_folder().name if cache is None else cache)
        path = folder.expanduser() / f"embeddings-{self.run_id}.float32"
        try:
            if not path.is_file():
                with atomic_file(path) as partial, partial.open("wb") as file:
                    for embeddings in self.embeddings():
                        file.write(embeddings.data)
        except OSError as error:
            if isinstance(error, FileNotFoundError):  # A shard is missing.
                raise
            raise OSError(
                error.errno,
                f"The file for mapping the embeddings of {self.folder!r}, of "
                f"{4 * math.prod(self.shape):,} bytes, cannot be written: "
                f"{error.strerror}. Set `cache` or TMPDIR to a folder with "
                "enough space",
                str(path),
            ) from error
        return np.memmap(path, np.float32, "r", shape=self.shape)

    def _labels(self, table: Any) -> Labels:
        """(n,) int64, or (n, C) booleans."""
        column = table.column(LABEL).combine_chunks()
        if not self._run.num_labels:
            labels: Rows = column.to_numpy(zero_copy_only=False)
            return labels
        label_sets = np.zeros((len(column), self._run.num_labels), bool)
        counts = column.value_lengths().to_numpy(zero_copy_only=False)
        rows = np.repeat(np.arange(len(column)), counts)
        label_sets[rows, column.flatten().to_numpy(zero_copy_only=False)] = True
        return label_sets

    def _tables(
        self, columns: Sequence[str] | None
    ) -> Iterator[tuple[slice, Any]]:
        from pyarrow import ArrowException, parquet

        for name, rows in self._run.shards.items():
            try:
                with self._storage.open(name) as file:
                    shard = parquet.ParquetFile(
                        file, page_checksum_verification=True
                    )
                    metadata = shard.schema_arrow.metadata or {}
                    if metadata.get(RUN_KEY, b"").decode() != self.run_id:
                        raise ValueError("it belongs to another run")
                    table = shard.read(columns)
                if len(table) != rows.stop - rows.start:
                    raise ValueError(f"it has {len(table)} rows")
            except FileNotFoundError:
                raise
            except (ValueError, OSError, ArrowException) as error:
                raise ValueError(
                    f"The shard {name} of {self.folder!r} must be unchanged "
                    f"since it was written. Received: {error}. Remove it, and "
                    "embed again: the other shards are kept."
                ) from None
            yield rows, table

    def __repr__(self) -> str:
        count, dim = self.shape
        return (
            f"EmbeddingShards({count:,} × {dim} {self.dtype} in "
            f"{self.num_shards} shards)"
        )


def _embeddings(table: Any) -> FloatArray:
    """(n, D) float32."""
    column = table.column(EMBEDDING).combine_chunks()
    numbers = column.flatten().to_numpy(zero_copy_only=False)
    return np.array(numbers.reshape(len(column), -1), np.float32)
