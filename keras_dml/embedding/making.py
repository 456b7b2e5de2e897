"""Creating the missing shards of a run, and the manifest that lists them."""

import contextlib
import time
from collections.abc import Generator
from typing import Any, TypeAlias, cast

from keras_dml.embedding.bad_limit import check_bad
from keras_dml.embedding.manifest import BadExample, Manifest
from keras_dml.embedding.shard_work import EmbedShards, Written
from keras_dml.embedding.shards import EmbeddingShards
from keras_dml.embedding.source import Source
from keras_dml.embedding.storage import storage_of
from keras_dml.embedding.target import Target, in_order
from keras_dml.pools import Done, Pool
from keras_dml.utils.progress import throughput
from keras_dml.utils.provenance import versions

_Results: TypeAlias = Generator[Done[Any, Written], None, None]


def made(
    work: EmbedShards,
    source: Source,
    pool: Pool,
    most: int,
    overwrite: bool,
    progress: bool | None,
) -> EmbeddingShards:
    """Creates the missing shards of a run, and returns all of them.

    Args:
        work: The work that creates a shard.
        source: The examples.
        pool: The pool that does the work.
        most: The largest number of unreadable examples.
        overwrite: Whether to remove the shards of another run.
        progress: As for `embed_shards`.

    Raises:
        ValueError: If there are more unreadable examples.
        FileExistsError: If the folder holds something else.
        BlockingIOError: If another process writes to the folder.
        OSError: If a shard cannot be written.
    """
    target = Target(storage_of(work.folder), work.run)
    with target.lock():
        written = target.found(overwrite)
        if len(_bad(written)) > most:  # They may have been fixed since.
            written = {k: x for k, x in written.items() if not x.bad}
        if len(written) < work.run.num_shards or not target.is_ended():
            target.open()
            speed = _make(work, source, pool, most, written, progress)
            target.end(_manifest(work, source, written, speed))
    return EmbeddingShards(work.folder)


def _make(
    work: EmbedShards,
    source: Source,
    pool: Pool,
    most: int,
    written: dict[int, Written],
    progress: bool | None,
) -> float:
    """Adds the missing shards to those that are already written.

    Returns:
        Number of examples embedded per second.
    """
    run, folder = work.run, str(work.folder)
    done = sum(x.entry.examples for x in written.values())
    began, left = time.perf_counter(), len(source) - done
    missing = [x for x in range(run.num_shards) if x not in written]
    if not missing:
        return 0.0
    parts = (source.part(number, run.rows_per_shard) for number in missing)
    results = cast(_Results, pool.run(work, parts))
    with (
        contextlib.closing(results),
        throughput(
            len(source), done, "examples", "Embedding", progress
        ) as count,
    ):
        for shard in results:
            entry = shard.result.entry
            written[entry.number] = shard.result
            count(entry.examples)
            check_bad(_bad(written), most, folder)
    return left / (time.perf_counter() - began)


def _manifest(
    work: EmbedShards,
    source: Source,
    written: dict[int, Written],
    speed: float,
) -> Manifest:
    return Manifest(
        run=work.run,
        shards=in_order(written),
        names=dict(source.examples.names),
        bad=_bad(written),
        batch_size=work.batch_size,
        images_per_second=speed,
        versions=versions(),
    )


def _bad(written: dict[int, Written]) -> tuple[BadExample, ...]:
    return tuple(x for key in sorted(written) for x in written[key].bad)
