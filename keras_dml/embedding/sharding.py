"""`embed_shards`: resumable embedding of millions of examples to a folder."""

import logging
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
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
from keras_dml.embedding.in_memory import embedded
from keras_dml.embedding.shards import (
    DOCUMENT,
    EMBEDDING,
    FILES,
    ID,
    LABEL,
    MANIFEST,
    NAME,
    ROW,
    RUN_KEY,
    EmbeddingShards,
    Folder,
    Run,
    ShardDtype,
    Storage,
    absolute,
    downloaded,
    is_url,
    with_paths,
)
from keras_dml.model.identity import ModelIdentity
from keras_dml.utils.arguments import checked
from keras_dml.utils.models import read_model
from keras_dml.utils.progress import throughput
from keras_dml.utils.types import Count, FloatArray, Rows

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_OWNER = "embed_shards"

ROWS_PER_SHARD = 8192

_SOURCE = "source"
"""The name of the column for ids that repeat, as in an Index."""

_SAMPLE = 64
"""Number of examples of an array that are hashed to identify it."""


@checked
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


@checked
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
) -> Run:
    labels = examples.labels if examples.has_label_sets else None
    return Run(
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
            count = min(_SAMPLE, len(examples))
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

    run: Run
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
        with downloaded(self.examples.select(rows)) as local:
            about = "examples", _OWNER, self.batch_size
            return embedded(
                self.model,
                local,
                *about,
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


def _begin(storage: Storage, run: Run) -> Run:
    """The run to continue, which is `run` in a new folder."""
    names = storage.names()
    if not names:
        storage.write(MANIFEST, DOCUMENT.write(run).encode())
        return run
    received = f"shards without {MANIFEST}"
    if MANIFEST in names:
        before = Run.read(storage)
        difference = before.difference(run)
        if not difference:
            return before
        received = f"now {difference}"
    raise FileExistsError(
        f"The embeddings in {storage.name!r} must belong to the same run to be "
        f"continued. Received: {received}. Use another folder, or --overwrite "
        "(overwrite=True) to remove them."
    )
