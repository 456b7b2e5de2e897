"""`embed_shards`: embeddings of millions, as a folder that can be gone on."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

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
from keras_dml.utils.arguments import check_choice, check_count, import_extra
from keras_dml.utils.model_files import read_model

_OWNER = "embed_shards"

ROWS_PER_SHARD = 8192


def embed_shards(
    model: keras.Model | str | os.PathLike[str],
    examples: Any,
    folder: Folder,
    *,
    workers: int | None = None,
    ray: str | bool | None = None,
    rows_per_shard: int = ROWS_PER_SHARD,
    dtype: Precision = "float32",
    batch_size: int = 256,
    columns: Mapping[str, Sequence[Any]] | None = None,
    max_bad: int | float | None = None,
    overwrite: bool = False,
    progress: bool | None = None,
    timeout: float | None = None,
) -> EmbeddingShards:
    """Embeds examples into a folder of Parquet files, the shards.

    A shard is written whole or not at all. Where the run ends before all are
    there, since a worker, or all of them, or this process are killed, or a
    disk is full, the same call continues: it makes the shards that are not
    there. One process writes into a folder at a time.

    Args:
        model: As for `embed`; or the path of a `.keras` file.
        examples: As for `embed`, but no `tf.data.Dataset`, of which parts
            cannot be had.
        folder: A path, or a URL that fsspec knows, as s3://bucket/gallery.
        workers: How many processes embed, each with the model. None is
            this one; with Ray, as many as the cluster has GPUs or CPUs.
        ray: Whether they are actors of a Ray cluster, or its address; see
            `keras_dml.pools.RayActors`.
        rows_per_shard: Examples in a shard; the last one may have fewer.
            A worker that is killed loses at the most this much.
        dtype: In which numbers embeddings are stored: "float32", or
            "float16", which is half of the size.
        batch_size: Examples embedded at a time.
        columns: More about the examples, by name: N texts or numbers each.
        max_bad: How many examples that cannot be read to pass over before
            the run stops: a number, or a share between 0.0 and 1.0. By
            default a hundredth, and 10 at least.
        overwrite: Whether to replace embeddings of something else.
        progress: Whether to show progress; None shows it in a terminal.
        timeout: Seconds after which a worker at one shard counts as hung.

    Returns:
        The embeddings of all examples that could be read.

    Raises:
        ValueError: If an argument is not as described, the model makes what
            is no embedding, or more examples are bad than may be.
        FileExistsError: If the folder holds something else, or embeddings
            of other examples or of another model.
        BlockingIOError: If another process writes there.
        OSError: If a shard cannot be written.
        ImportError: If an extra is missing: "parquet", "ray".
    """
    if isinstance(model, str | os.PathLike):
        model = read_model(model)
    import_extra(_OWNER, "pyarrow", EXTRA)
    source = Source(as_examples(examples, "examples", _OWNER), columns)
    identity = ModelIdentity.of(model)
    dim = len(_finite(identity)[0])
    run = _run(source, identity, dim, rows_per_shard, dtype)
    check_count(_OWNER, "batch_size", batch_size)
    work = _work(model, source, run, folder, batch_size)
    if workers is not None:
        check_count(_OWNER, "workers", workers)
    pool = pool_of(workers, ray, timeout)
    most = most_bad(max_bad, len(source))
    return made(work, source, pool, most, overwrite, progress)


def write_shards(
    embeddings: Any,
    folder: Folder,
    labels: Any = None,
    names: Names | None = None,
    ids: Sequence[str] | None = None,
    *,
    columns: Mapping[str, Sequence[Any]] | None = None,
    rows_per_shard: int = ROWS_PER_SHARD,
    dtype: Precision = "float32",
    overwrite: bool = False,
    progress: bool | None = None,
) -> EmbeddingShards:
    """Writes embeddings that are there as a folder of shards.

    It is as `embed_shards` writes it, and so are further arguments; which
    model made the embeddings is not known.

    Args:
        embeddings: (N, D), finite, in memory or in a file: `numpy.memmap`,
            `h5py`, `zarr`.
        folder: A path, or a URL that fsspec knows.
        labels: Classes, as `ArraySet` takes them; or None.
        names: Their names, as there.
        ids: N texts that tell the rows apart, by default their numbers.

    Raises:
        ValueError: If an argument is not as described.
        OSError: As `embed_shards`.
    """
    owner = "write_shards"
    import_extra(owner, "pyarrow", EXTRA)
    if len(np.shape(embeddings)) != 2:
        raise ValueError(
            f"`embeddings` of {owner} must be (N, D). Received: an array of "
            f"shape {np.shape(embeddings)}."
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
    check_choice(_OWNER, "dtype", dtype, get_args(Precision))
    return Run(
        model=model,
        examples=len(source),
        fingerprint=source.fingerprint,
        rows_per_shard=check_count(_OWNER, "rows_per_shard", rows_per_shard),
        dtype=dtype,
        dim=dim,
        labels=source.labels,
        num_labels=source.num_labels,
        columns=tuple(source.columns),
    )


def _finite(identity: ModelIdentity) -> tuple[tuple[float, ...], ...]:
    """Embeddings of generated examples, as a model makes them."""
    found = identity.test_embeddings
    if not np.isfinite(found).all():
        raise ValueError(
            f"`model` of {_OWNER} must make finite embeddings. Received: NaN "
            "or infinity for generated examples, which usually means that "
            "training diverged: lower the learning rate or clip gradients."
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
