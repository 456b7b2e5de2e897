"""`embed_shards`: resumable embedding of millions of examples to a folder."""

import contextlib
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import keras
import numpy as np

from keras_dml.data import ArraySet
from keras_dml.data.as_examples import as_examples
from keras_dml.data.fields import Names
from keras_dml.embedding.engines import KERAS, Engine, check_engine
from keras_dml.embedding.manifest import MANIFEST, BadExample, Manifest, Run
from keras_dml.embedding.pools import pool_of
from keras_dml.embedding.shard_file import RESERVED, ShardHead, read_head
from keras_dml.embedding.shard_work import EmbedShards
from keras_dml.embedding.shards import EmbeddingShards
from keras_dml.embedding.source import Source
from keras_dml.embedding.storage import EXTRA, Folder, Storage, from_anywhere
from keras_dml.embedding.workers import InProcess, Pool
from keras_dml.model.identity import ModelIdentity
from keras_dml.utils.arguments import checked, import_extra
from keras_dml.utils.models import read_model
from keras_dml.utils.progress import throughput
from keras_dml.utils.provenance import versions
from keras_dml.utils.types import Count, Precision

_OWNER = "embed_shards"

ROWS_PER_SHARD = 8192

_SHARE, _LEAST = 0.01, 10
"""Share and number of examples that may be unreadable by default."""

_NAMED = 3
"""Number of unreadable examples that an error names."""

_SHARD = re.compile(r"shard-(\d{5,})\.parquet")

_THREADS = 16
"""Number of shards to check at the same time, as object stores are slow."""


@checked
def embed_shards(
    model: keras.Model | str | os.PathLike[str],
    examples: Any,
    folder: Folder,
    *,
    workers: Count | None = None,
    ray: str | bool | None = None,
    rows_per_shard: Count = ROWS_PER_SHARD,
    dtype: Precision = "float32",
    batch_size: Count = 256,
    columns: Mapping[str, Sequence[Any]] | None = None,
    max_bad: int | float | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
    engine: Engine = KERAS,
) -> EmbeddingShards:
    """Embeds examples into a folder of Parquet files, called shards.

    Each shard is written atomically. If a run is interrupted, because a worker
    or this process is killed or a disk is full, the same call continues with
    the missing shards. Only one process can write to a folder at a time; for a
    URL, this is not checked.

    Args:
        model: As for `embed`, or the path of a `.keras` file.
        examples: As for `embed`, except for `tf.data.Dataset`, which cannot be
            divided into parts.
        folder: A path, or a URL that fsspec supports, such as
            s3://bucket/gallery.
        workers: Number of processes that embed, each with a copy of the model.
            None uses this process alone or, with Ray, one worker per GPU or CPU
            of the cluster.
        ray: Whether the workers are actors of a Ray cluster, or its address,
            HOST:PORT. True uses the cluster that this process is connected to,
            that of RAY_ADDRESS or the one started on this machine, and else
            starts Ray here. All machines need the same versions of packages,
            and must see the folder and the examples.
        rows_per_shard: Number of examples per shard; the last one may have
            fewer. A worker that is killed loses at most this many.
        dtype: Number format of the stored embeddings: "float32", "float16"
            (half the size), "int8" (a quarter: the largest number of each row
            is 127 steps) or "binary" (signs alone: they are read as those of
            vectors of unit length).
        batch_size: Number of examples to embed at a time.
        columns: Further columns by name, each with N strings or numbers.
        max_bad: The largest number of unreadable examples to skip before the
            run stops, or their largest share, from 0.0 to 1.0. By default, 1 %
            of the examples, but at least 10.
        overwrite: Whether to replace the embeddings of a different run.
        progress: Whether to show progress; None shows it in a terminal.
        engine: As for `embed`; another one may continue a run.

    Returns:
        The embeddings of all examples that could be read.

    Raises:
        ValueError: If an argument is invalid, the model does not return finite
            embeddings, or there are more than `max_bad` unreadable examples.
        FileExistsError: If the folder holds other files, or embeddings of other
            examples or of another model.
        BlockingIOError: If another process writes to the folder.
        OSError: If a shard cannot be written.
        ImportError: If the extra "parquet", "ray" or "openvino" is required
            but not installed.
    """
    check_engine(_OWNER, engine)
    if isinstance(model, str | os.PathLike):
        model = read_model(model)
    import_extra(_OWNER, "pyarrow", EXTRA)
    source = Source(as_examples(examples, "examples", _OWNER), columns)
    identity = ModelIdentity.of(model)
    dim = len(_finite(identity)[0])
    run = _run(source, identity, dim, rows_per_shard, dtype)
    size = min(batch_size, rows_per_shard)
    work = EmbedShards(model, run, from_anywhere(folder), size, engine)
    pool = pool_of(workers, ray)
    most = _most_bad(max_bad, len(source))
    return _written(work, source, pool, most, overwrite, progress)


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
    dtype: Precision = "float32",
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
    owner = "write_shards"
    import_extra(owner, "pyarrow", EXTRA)
    if len(np.shape(embeddings)) != 2:
        raise ValueError(
            f"`embeddings` of {owner} must have shape (N, D). Received: an "
            f"array of shape {np.shape(embeddings)}."
        )
    given = ArraySet(embeddings, labels, names, ids)
    source = Source(given, columns, whole=True)
    run = _run(source, None, embeddings.shape[1], rows_per_shard, dtype)
    work = EmbedShards(None, run, from_anywhere(folder), 0)
    return _written(work, source, InProcess(), 0, overwrite, progress)


def _run(
    source: Source,
    model: ModelIdentity | None,
    dim: int,
    rows_per_shard: int,
    dtype: Precision,
) -> Run:
    return Run(
        model=model,
        examples=len(source),
        fingerprint=source.fingerprint,
        rows_per_shard=int(rows_per_shard),
        dtype=dtype,
        dim=dim,
        labels=source.labels,
        num_labels=source.num_labels,
        columns=tuple(
            x for x in source.table.column_names if x not in RESERVED
        ),
    )


def _finite(identity: ModelIdentity) -> tuple[tuple[float, ...], ...]:
    """A model's embeddings of generated examples; they must be finite."""
    found = identity.test_embeddings
    if not np.isfinite(found).all():
        raise ValueError(
            f"`model` of {_OWNER} must return finite embeddings. Received: NaN "
            "or infinity for generated examples, which usually means that "
            "training diverged. Lower the learning rate or clip gradients."
        )
    return found


def _written(
    work: EmbedShards,
    source: Source,
    pool: Pool,
    most: int,
    overwrite: bool,
    progress: bool | None,
) -> EmbeddingShards:
    """Writes the missing shards; errors are those of `embed_shards`."""
    storage, run = Storage(work.folder), work.run
    _check_ours(storage)
    with storage.lock("embedding"):
        storage.sweep()
        if overwrite:
            # First the file that identifies the run of the shards.
            for name in (MANIFEST, *storage.sizes()):
                storage.remove(name)
        before = _before(storage, run)
        written = _finished(storage, before)
        if len(_bad(written)) > most:  # They may have been fixed since.
            written = {k: x for k, x in written.items() if not x.bad}
        if len(written) < run.num_shards or not before.shards:
            storage.write(MANIFEST, Manifest(run).to_json().encode())
            speed = _make(work, source, pool, most, written, progress)
            manifest = _manifest(work, source, written, speed)
            storage.write(MANIFEST, manifest.to_json().encode())
    return EmbeddingShards(work.folder)


def _check_ours(storage: Storage) -> None:
    names = [x for x in storage.sizes() if x != MANIFEST]
    odd = [name for name in names if not _SHARD.fullmatch(name)]
    if odd:
        raise FileExistsError(
            "The folder to write embeddings to must be new or contain only "
            f"embeddings. Received: {storage.name!r}, which contains "
            f"{odd[0]!r}. Use another folder."
        )


def _before(storage: Storage, run: Run) -> Manifest:
    """The manifest of the existing shards; an empty one if there are none.

    Raises:
        FileExistsError: If they are of another run.
        ValueError: If the manifest cannot be read.
    """
    sizes = storage.sizes()
    if not any(map(_SHARD.fullmatch, sizes)):
        return Manifest(run)
    if MANIFEST not in sizes:
        raise _refusal(storage, f"shards without {MANIFEST}")
    where = f"{MANIFEST} in {storage.name!r}"
    before = Manifest.from_json(storage.read(MANIFEST), where)
    if difference := before.run.difference(run):
        raise _refusal(storage, f"now {difference}")
    return before


def _finished(storage: Storage, before: Manifest) -> dict[int, ShardHead]:
    """The existing shards of a run by number, but for truncated ones.

    Raises:
        FileExistsError: If there are shards of another run.
    """
    sizes = storage.sizes()

    def finished(name: str) -> ShardHead | None:
        try:
            with storage.open(name) as file:
                head = replace(read_head(file), bytes=sizes[name])
        except ValueError:
            return None
        if head.run != before.run.id:
            raise _refusal(storage, f"{name}, which belongs to another run")
        return head if head.entry.name == name else None

    with ThreadPoolExecutor(_THREADS) as threads:
        heads = threads.map(finished, filter(_SHARD.fullmatch, sizes))
        found = [head for head in heads if head is not None]
    listed = set(before.shards) or {head.entry for head in found}
    return {head.number: head for head in found if head.entry in listed}


def _refusal(storage: Storage, received: str) -> FileExistsError:
    return FileExistsError(
        f"The embeddings in {storage.name!r} must belong to the same run to be "
        f"continued. Received: {received}. Use another folder, or --overwrite "
        "(overwrite=True) to remove them."
    )


def _make(
    work: EmbedShards,
    source: Source,
    pool: Pool,
    most: int,
    written: dict[int, ShardHead],
    progress: bool | None,
) -> float:
    """Adds the missing shards to those that are already written.

    Returns:
        Number of examples embedded per second.
    """
    run, folder = work.run, str(work.folder)
    done = sum(head.examples for head in written.values())
    began, left = time.perf_counter(), len(source) - done
    missing = [x for x in range(run.num_shards) if x not in written]
    if not missing:
        return 0.0
    parts = (source.part(number, run.rows_per_shard) for number in missing)
    with (
        contextlib.closing(pool.run(work, parts)) as results,
        throughput(
            len(source), done, "examples", "Embedding", progress
        ) as count,
    ):
        for part, head in results:
            written[part.number] = head
            count(head.examples)
            _check_bad(_bad(written), most, folder)
    return left / (time.perf_counter() - began)


def _manifest(
    work: EmbedShards,
    source: Source,
    written: dict[int, ShardHead],
    speed: float,
) -> Manifest:
    return Manifest(
        run=work.run,
        shards=tuple(written[x].entry for x in sorted(written)),
        names=dict(source.examples.names),
        bad=_bad(written),
        batch_size=work.batch_size,
        images_per_second=speed,
        versions=versions(),
    )


def _bad(written: dict[int, ShardHead]) -> tuple[BadExample, ...]:
    return tuple(x for key in sorted(written) for x in written[key].bad)


def _most_bad(max_bad: Any, count: int) -> int:
    """How many of `count` examples may be unreadable; see `embed_shards`."""
    if max_bad is None:
        return max(_LEAST, math.ceil(_SHARE * count))
    whole = isinstance(max_bad, int | np.integer)
    if whole and not isinstance(max_bad, bool) and max_bad >= 0:
        return int(max_bad)
    if isinstance(max_bad, float | np.floating) and 0 <= max_bad <= 1:
        return math.floor(max_bad * count)
    raise ValueError(
        "`max_bad` of embed_shards must be a number of examples, at least 0, "
        f"or a share from 0.0 to 1.0. Received: max_bad={max_bad!r}. Use for "
        "instance 100 or 0.01."
    )


def _check_bad(bad: Sequence[BadExample], most: int, folder: str) -> None:
    """Raises ValueError if there are more unreadable examples than allowed."""
    if len(bad) <= most:
        return
    named = " ".join(f"Row {x.row}: {x.error}" for x in bad[:_NAMED])
    raise ValueError(
        "`max_bad` of embed_shards must be at least the number of unreadable "
        f"examples. Received: {most}, but {len(bad)} could not be read so far. "
        f"{named} Fix or remove these files, or allow more with --max-bad "
        f"(max_bad=…). The shards in {folder!r} are kept, and the same call "
        "continues."
    )
