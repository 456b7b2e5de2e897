"""`embed_shards`: resumable embedding of millions of examples to a folder."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_dml.data import ArraySet
from keras_dml.data.fields import Names
from keras_dml.data.given import as_examples
from keras_dml.embedding.bad_limit import most_bad
from keras_dml.embedding.making import made
from keras_dml.embedding.manifest import Precision, Run
from keras_dml.embedding.shard_file import schema_of
from keras_dml.embedding.shard_work import EmbedShards
from keras_dml.embedding.shards import EmbeddingShards
from keras_dml.embedding.source import Source
from keras_dml.embedding.storage import EXTRA, Folder, from_anywhere
from keras_dml.model.identity import ModelIdentity
from keras_dml.pools import InProcess, pool_of
from keras_dml.utils.arguments import (
    checked,
    import_extra,
)
from keras_dml.utils.models import read_model
from keras_dml.utils.types import Count

_OWNER = "embed_shards"

ROWS_PER_SHARD = 8192


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
    timeout: float | None = None,
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
        ray: Whether the workers are actors of a Ray cluster, or the address of
            the cluster; see `keras_dml.pools.RayActors`.
        rows_per_shard: Number of examples per shard; the last one may have
            fewer. A worker that is killed loses at most this many.
        dtype: Number format of the stored embeddings: "float32", or "float16"
            for half the size.
        batch_size: Number of examples to embed at a time.
        columns: Further columns by name, each with N strings or numbers.
        max_bad: The largest number of unreadable examples to skip before the
            run stops, or their largest share, from 0.0 to 1.0. By default, 1 %
            of the examples, but at least 10.
        overwrite: Whether to replace the embeddings of a different run.
        progress: Whether to show progress; None shows it in a terminal.
        timeout: Seconds per shard after which a worker counts as hung.

    Returns:
        The embeddings of all examples that could be read.

    Raises:
        ValueError: If an argument is invalid, the model does not return finite
            embeddings, or there are more than `max_bad` unreadable examples.
        FileExistsError: If the folder holds other files, or embeddings of other
            examples or of another model.
        BlockingIOError: If another process writes to the folder.
        OSError: If a shard cannot be written.
        ImportError: If the extra "parquet" or "ray" is required but not
            installed.
    """
    if isinstance(model, str | os.PathLike):
        model = read_model(model)
    import_extra(_OWNER, "pyarrow", EXTRA)
    source = Source(as_examples(examples, "examples", _OWNER), columns)
    identity = ModelIdentity.of(model)
    dim = len(_finite(identity)[0])
    run = _run(source, identity, dim, rows_per_shard, dtype)
    work = _work(model, source, run, folder, batch_size)
    pool = pool_of(workers, ray, timeout)
    most = most_bad(max_bad, len(source))
    return made(work, source, pool, most, overwrite, progress)


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
    work = _work(None, source, run, folder, 0)
    return made(work, source, InProcess(), 0, overwrite, progress)


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
        columns=tuple(source.columns),
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


def _work(
    model: keras.Model | None,
    source: Source,
    run: Run,
    folder: Folder,
    batch_size: int,
) -> EmbedShards:
    has_names = bool(source.examples.names) and run.labels != "none"
    schema = schema_of(run, has_names, source.schema)
    size = min(batch_size, run.rows_per_shard)
    return EmbedShards(model, run, schema, from_anywhere(folder), size)
