"""Shards: a folder of embeddings, written by `embed_shards` and read in parts.

A shard is a Parquet file with the embeddings of consecutive examples. Its
columns are `id`, `row` (in the source), `label`, `name` (if classes have
names), further columns, and `embedding`, a list of fixed size. The metadata of
its schema names the run that wrote it, and `_manifest.json` describes the run.
A run that was interrupted continues with the shards that are missing.
"""

import contextlib
import functools
import logging
import math
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import keras
import numpy as np
from annotated_types import Ge, Le
from xxhash import xxh3_128

from keras_dml.data import ArraySet, Examples, ImageSet
from keras_dml.data.hashing import contents
from keras_dml.data.reading import as_examples
from keras_dml.data.validation import Names
from keras_dml.embedding.engines import (
    KERAS,
    Engine,
    Predict,
    check_engine,
    predict_function,
)
from keras_dml.embedding.in_memory import embed_argument
from keras_dml.model.identity import ModelIdentity
from keras_dml.utils.arguments import check_arguments
from keras_dml.utils.files import (
    Document,
    atomic_file,
    differences,
    format_changes,
    one_at_a_time,
    sweep,
    write_atomically,
)
from keras_dml.utils.models import read_model
from keras_dml.utils.progress import throughput
from keras_dml.utils.types import Count, FloatArray, Labels, Rows

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

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

_OWNER = "embed_shards"

ROWS_PER_SHARD = 8192

_SOURCE = "source"
"""The name of the column for ids that repeat, as in an Index."""

_SAMPLE_SIZE = 64
"""Number of examples of an array that are hashed to identify it."""


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
def download(examples: Examples) -> Iterator[Examples]:
    """Downloads images at URLs to files that exist in this context."""
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
class EmbeddingRun:
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

    def difference(self, other: "EmbeddingRun") -> str:
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
        return format_changes(differences(before, after))

    @staticmethod
    def read(storage: Storage) -> "EmbeddingRun":
        """Reads the run of a folder; ValueError if its manifest is damaged."""
        try:
            with storage.open(MANIFEST) as file:
                return _DOCUMENT.read(file.read())
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


_DOCUMENT = Document(EmbeddingRun, "keras_dml.embedding")


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
        self._run = run = EmbeddingRun.read(self._storage)
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
            names = table.column_names
            fixed = [x for x in (ID, LABEL, EMBEDDING) if x in names]
            yield Shard(
                rows,
                _embeddings(table),
                table[ID].to_pylist(),
                self._labels(table) if LABEL in names else None,
                table.drop_columns(fixed).to_pydict(),
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


@check_arguments
def embed_shards(
    model: keras.Model | str | os.PathLike[str],
    examples: Any,
    folder: Folder,
    *,
    rows_per_shard: Count = ROWS_PER_SHARD,
    dtype: ShardDtype = "float32",
    batch_size: Count = 256,
    columns: Mapping[str, Sequence[Any]] | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
    engine: Engine = KERAS,
    ray: str | bool | None = None,
) -> EmbeddingShards:
    """Embeds examples into a folder of Parquet files, called shards.

    Each shard is written aside and renamed when it is complete. If a run is
    interrupted, because this process is killed, an image cannot be read or a
    disk is full, the same call continues with the missing shards. Only one
    process can write to a folder at a time; for a URL, this is not checked.

    Args:
        model: As for `embed`, or the path of a `.keras` file.
        examples: As for `embed`, except for `tf.data.Dataset`, which cannot be
            divided into parts.
        folder: A path, or a URL that fsspec supports, such as
            s3://bucket/gallery.
        rows_per_shard: Number of examples per shard; the last one may have
            fewer. A process that is killed loses at most this many.
        dtype: Number format of the stored embeddings: "float32" or "float16",
            which takes half the space. They are read as float32.
        batch_size: Number of examples to embed at a time.
        columns: Further columns by name, each with N strings or numbers.
        overwrite: Whether to replace the embeddings of a different run.
        progress: Whether to show progress; None shows it in a terminal.
        engine: As for `embed`; another one may continue a run.
        ray: Whether actors of a Ray cluster embed, or the address of the
            cluster, HOST:PORT. There is one actor per GPU or, if there are
            none, per CPU. True uses the cluster that this process is connected
            to, that of RAY_ADDRESS or the one started on this machine, and else
            starts Ray here. All machines need the same versions of packages,
            and must see the folder and the examples. Ray repeats the work of an
            actor that dies.

    Returns:
        The embeddings of all examples.

    Raises:
        ValueError: If an argument is invalid, an image cannot be decoded, or
            the model does not return finite embeddings.
        FileExistsError: If the folder holds other files, or embeddings of other
            examples or of another model.
        BlockingIOError: If another process writes to the folder.
        OSError: If an image cannot be read, a shard cannot be written, the
            cluster cannot be joined, or an actor fails.
        ImportError: If the extra "openvino" or "ray", or a package for such
            URLs, is required but not installed.
    """
    check_engine(_OWNER, engine)
    if isinstance(model, str | os.PathLike):
        model = read_model(model)
    examples = as_examples(examples, "examples", _OWNER)
    if isinstance(examples, ImageSet) and examples.paths is not None:
        # Processes of Ray may run in another folder.
        examples = with_paths(examples, map(absolute, examples.paths))
    identity = ModelIdentity.of(model)
    dim = len(identity.test_embeddings[0])
    table = _source_table(examples, columns)
    run = _new_run(examples, table, identity, dim, rows_per_shard, dtype)
    how = model, min(batch_size, rows_per_shard), engine
    writer = ShardWriter(run, table, absolute(folder), examples, *how)
    return _write_missing(writer, overwrite, progress, ray)


@check_arguments
def write_shards(
    embeddings: Any,
    folder: Folder,
    labels: Any = None,
    names: Names | None = None,
    ids: Sequence[str] | None = None,
    *,
    columns: Mapping[str, Sequence[Any]] | None = None,
    rows_per_shard: Count = ROWS_PER_SHARD,
    dtype: ShardDtype = "float32",
    overwrite: bool = False,
    progress: bool | None = None,
) -> EmbeddingShards:
    """Writes existing embeddings to a folder of shards.

    The folder has the format of `embed_shards`, and the other arguments are
    explained there. The model that made the embeddings is not recorded.

    Args:
        embeddings: (N, D), finite, in memory or in a file: `numpy.memmap`,
            `h5py`, `zarr`.
        folder: A path, or a URL that fsspec supports.
        labels: Classes, as for `ArraySet`, or None.
        names: Names of the classes, as for `ArraySet`.
        ids: N strings that identify the rows; by default, the row numbers.

    Raises:
        ValueError: If an argument is invalid.
        OSError: As for `embed_shards`.
    """
    if len(np.shape(embeddings)) != 2:
        raise ValueError(
            "`embeddings` of write_shards must have shape (N, D). Received: an "
            f"array of shape {np.shape(embeddings)}."
        )
    rows = ArraySet(embeddings, labels, names, ids)
    table, dim = _source_table(rows, columns), embeddings.shape[1]
    run = _new_run(rows, table, None, dim, rows_per_shard, dtype)
    writer = ShardWriter(run, table, absolute(folder), rows)
    return _write_missing(writer, overwrite, progress)


def source_ids(examples: Examples) -> list[str]:
    """Ids of examples: their own, the paths of files, or row numbers.

    Paths are relative to the common folder, with slashes; URLs are unchanged.
    """
    if examples.ids is not None:
        return list(examples.ids)
    if not isinstance(examples, ImageSet) or examples.paths is None:
        return list(map(str, range(len(examples))))
    paths = list(examples.paths)
    if any(map(is_url, paths)):
        return paths
    try:
        root = os.path.commonpath({os.path.dirname(path) for path in paths})
    except ValueError:  # The files are on several drives.
        return paths
    start = len(root.rstrip(os.sep)) + 1
    return [path[start:].replace(os.sep, "/") for path in paths]


def unique_ids(ids: list[str]) -> list[str]:
    return ids if len(set(ids)) == len(ids) else [*map(str, range(len(ids)))]


def _source_table(
    examples: Examples, columns: Mapping[str, Sequence[Any]] | None
) -> "pa.Table":
    """All columns of the shards but the embeddings, N rows."""
    import pyarrow as pa

    if not len(examples):
        raise ValueError(
            "`examples` of embed_shards must not be empty. Received: "
            f"{examples!r}."
        )
    ids, labels = source_ids(examples), examples.labels
    table: dict[str, Any] = {ID: unique_ids(ids), ROW: range(len(ids))}
    if labels is not None:
        is_set = examples.has_label_sets
        table[LABEL] = [np.flatnonzero(x) for x in labels] if is_set else labels
        if examples.names:
            names = map(examples.class_called, range(len(ids)))
            table[NAME] = list(names)
    if isinstance(examples, ImageSet) and examples.paths is not None:
        table["path"] = list(examples.paths)
        if examples.boxes is not None:
            table["box"] = examples.boxes.tolist()
    if table[ID] != ids:
        logger.info(
            "Ids of the %d examples repeat. Row numbers are used as ids "
            "instead, and the column %s holds the original ids.",
            len(ids),
            _SOURCE,
        )
        table[_SOURCE] = ids
    reserved = {*table, LABEL, NAME, EMBEDDING}
    for name, values in (columns or {}).items():
        received = f"{len(values)} values of {name!r}"
        try:
            table[name] = pa.array(values)
        except pa.ArrowException as error:
            received = f"{name!r}, which cannot be written: {error}"
        if name in reserved or len(table.get(name, ())) != len(ids):
            raise ValueError(
                "`columns` of embed_shards must each have a single type and "
                f"{len(ids)} values, one per example, and a name other than "
                f"{', '.join(sorted(reserved))}. Received: {received}."
            )
    return pa.table(table)


def _new_run(
    examples: Examples,
    table: "pa.Table",
    model: ModelIdentity | None,
    dim: int,
    rows_per_shard: int,
    dtype: ShardDtype,
) -> EmbeddingRun:
    labels = examples.labels if examples.has_label_sets else None
    return EmbeddingRun(
        id=secrets.token_hex(16),
        model=model,
        fingerprint=_fingerprint(examples, table, whole=model is None),
        examples=len(examples),
        rows_per_shard=int(rows_per_shard),
        dim=dim,
        dtype=dtype,
        num_labels=0 if labels is None else labels.shape[1],
        columns=tuple(table.column_names),
        names=dict(examples.names),
    )


def _fingerprint(examples: Examples, table: "pa.Table", whole: bool) -> str:
    """Checksum of all columns, and of arrays: the `whole` or a sample."""
    checksum = xxh3_128(repr(sorted(examples.names.items())).encode())
    for name in table.column_names:
        if name != "path":  # Paths change when a folder is moved.
            values = repr(table[name].to_pylist())
            checksum.update(f"{name}{values}".encode(errors="surrogateescape"))
    if "path" not in table.column_names:
        if not whole:
            count = min(_SAMPLE_SIZE, len(examples))
            rows = np.linspace(0, len(examples) - 1, count).astype(np.int64)
            examples = examples.select(rows)
        for part in contents(examples):
            checksum.update(part)
    return checksum.hexdigest()


@dataclass(frozen=True)
class ShardWriter:
    """Embeds the rows of a shard and writes its file; it can be pickled.

    Without a model, the examples are the embeddings.
    """

    run: EmbeddingRun
    table: "pa.Table"  # All columns but the embeddings, N rows.
    folder: str  # An absolute path, or a URL.
    examples: Examples
    model: keras.Model | None = None
    batch_size: int = 0
    engine: Engine = KERAS

    @cached_property
    def _predict(self) -> Predict:
        return predict_function(self.model, self.engine, _OWNER)

    def _embeddings(self, rows: Rows) -> FloatArray:
        """Embeddings, (n, D) float32, of n rows."""
        if self.model is None:
            stored: FloatArray = self.examples.inputs(rows)
            return stored
        with download(self.examples.select(rows)) as local:
            args = "examples", _OWNER, self.batch_size
            return embed_argument(
                self.model,
                local,
                *args,
                progress=False,
                padded=True,
                predict=self._predict,
            ).embeddings

    def __call__(self, name: str) -> int:
        """Writes the shard of a name; returns its number of rows."""
        import pyarrow as pa
        from pyarrow import parquet

        part = self.run.shards[name]
        table = self.table.slice(part.start, part.stop - part.start)
        embeddings = self._embeddings(np.arange(part.start, part.stop))
        numbers = pa.array(self._as_stored(embeddings, table).reshape(-1))
        element = pa.field("element", numbers.type, nullable=False)
        width = pa.list_(element, self.run.dim)
        table = table.append_column(
            pa.field(EMBEDDING, width, nullable=False),
            pa.FixedSizeListArray.from_arrays(numbers, type=width),
        ).replace_schema_metadata({RUN_KEY: self.run.id})
        file = pa.BufferOutputStream()
        # Embeddings hardly compress: zstd makes them 12 % smaller, and reading
        # them takes half as long again.
        texts = [x.name for x in table.schema if pa.types.is_string(x.type)]
        parquet.write_table(
            table,
            file,
            row_group_size=len(table),
            compression=dict.fromkeys(texts, "zstd"),
            use_dictionary=[NAME],
            write_page_checksum=True,
        )
        try:
            Storage(self.folder).write(name, file.getvalue().to_pybytes())
        except OSError as error:
            raise OSError(
                error.errno,
                f"The shard {name} cannot be written to {self.folder!r}: "
                f"{error.strerror or error}. Finished shards are kept. Free "
                "some space or fix the problem, and embed again with the same "
                "arguments to continue",
            ) from error
        return len(table)

    def _as_stored(
        self, embeddings: FloatArray, table: "pa.Table"
    ) -> FloatArray:
        """The embeddings in the number format; ValueError if infinite there."""
        with np.errstate(over="ignore"):
            numbers = embeddings.astype(self.run.dtype)
        infinite = np.argwhere(~np.isfinite(numbers))
        if len(infinite):
            row, column = infinite[0].tolist()
            raise ValueError(
                "`model` of embed_shards must return finite embeddings, in "
                f"float16 up to 65504. Received: row {table[ROW][row]}, "
                f"{table[ID][row].as_py()!r}, has {embeddings[row, column]}. "
                "NaN and infinity usually mean that training diverged: lower "
                'the learning rate. For large numbers, use dtype="float32".'
            )
        return numbers


def _write_missing(
    writer: ShardWriter,
    overwrite: bool,
    progress: bool | None,
    ray: str | bool | None = None,
) -> EmbeddingShards:
    storage = Storage(writer.folder)
    foreign = {x for x in storage.names() if not FILES.fullmatch(x)}
    if foreign:
        raise FileExistsError(
            "The folder to write embeddings to must be new or contain only "
            f"embeddings. Received: {storage.name!r}, which contains "
            f"{min(foreign)!r}. Use another folder."
        )
    with storage.lock():
        if overwrite:
            for name in sorted(storage.names()):  # The manifest comes first.
                storage.remove(name)
        run = _begin(storage, writer.run)
        writer = replace(writer, run=run)
        missing = sorted({*run.shards} - storage.names())
        rows = sum(run.shards[x].stop - run.shards[x].start for x in missing)
        progress_bar = throughput(
            run.examples, run.examples - rows, "examples", "Embedding", progress
        )
        with progress_bar as count:
            results: Iterator[int] = map(writer, missing)
            if ray and missing:
                from keras_dml.embedding.on_ray import write_on_ray

                address = None if ray is True else ray
                results = write_on_ray(writer, missing, address)
            for num_rows in results:
                count(num_rows)
    return EmbeddingShards(storage.name)


def _begin(storage: Storage, run: EmbeddingRun) -> EmbeddingRun:
    """The run to continue, which is `run` in a new folder."""
    names = storage.names()
    if not names:
        storage.write(MANIFEST, _DOCUMENT.write(run).encode())
        return run
    received = f"shards without {MANIFEST}"
    if MANIFEST in names:
        before = EmbeddingRun.read(storage)
        difference = before.difference(run)
        if not difference:
            return before
        received = f"now {difference}"
    raise FileExistsError(
        f"The embeddings in {storage.name!r} must belong to the same run to be "
        f"continued. Received: {received}. Use another folder, or --overwrite "
        "(overwrite=True) to remove them."
    )
