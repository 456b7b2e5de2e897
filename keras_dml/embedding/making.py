"""Creating the missing shards of a run, and the manifest that lists them."""

import contextlib
import re
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, cast

from keras_dml.embedding.bad_limit import check_bad
from keras_dml.embedding.manifest import (
    MANIFEST,
    RUN,
    BadExample,
    Manifest,
    Run,
)
from keras_dml.embedding.shard_file import read_head
from keras_dml.embedding.shard_work import EmbedShards, Written
from keras_dml.embedding.shards import EmbeddingShards
from keras_dml.embedding.source import Source
from keras_dml.embedding.storage import Storage, storage_of
from keras_dml.pools import Done, Pool
from keras_dml.utils.progress import throughput
from keras_dml.utils.provenance import versions

_SHARD = re.compile(r"shard-(\d{5,})\.parquet")

_THREADS = 16
"""Number of shards to check at the same time, as object stores are slow."""

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
        FileExistsError: If the folder holds other files, or shards of another
            run.
        NotADirectoryError: If the folder is a file.
        BlockingIOError: If another process writes to the folder.
        OSError: If a shard cannot be written.
    """
    storage, run = storage_of(work.folder), work.run
    _check_ours(storage)
    with storage.lock("embedding"):
        storage.sweep()
        if overwrite:
            # First the files that identify the run of the shards.
            for name in (MANIFEST, RUN, *storage.sizes()):
                storage.remove(name)
        written = _finished(storage, run)
        if len(_bad(written)) > most:  # They may have been fixed since.
            written = {k: x for k, x in written.items() if not x.bad}
        if len(written) < run.num_shards or MANIFEST not in storage.sizes():
            storage.write(RUN, Manifest(run).to_json().encode())
            storage.remove(MANIFEST)
            speed = _make(work, source, pool, most, written, progress)
            manifest = _manifest(work, source, written, speed)
            storage.write(MANIFEST, manifest.to_json().encode())
            storage.remove(RUN)
    return EmbeddingShards(work.folder)


def _check_ours(storage: Storage) -> None:
    names = [x for x in storage.sizes() if x not in (RUN, MANIFEST)]
    odd = [name for name in names if not _SHARD.fullmatch(name)]
    if odd:
        raise FileExistsError(
            "The folder to write embeddings to must be new or contain only "
            f"embeddings. Received: {storage.name!r}, which contains "
            f"{odd[0]!r}. Use another folder."
        )


def _finished(storage: Storage, run: Run) -> dict[int, Written]:
    """The existing shards of a run by number, but for truncated ones.

    Raises:
        FileExistsError: If there are shards of another run.
        ValueError: If the file that identifies the run cannot be read.
    """
    sizes = storage.sizes()
    shards = [name for name in sizes if _SHARD.fullmatch(name)]
    if not shards:
        return {}
    before = _before(storage, MANIFEST if MANIFEST in sizes else RUN, run)

    def finished(name: str) -> Written | None:
        try:
            with storage.open(name) as file:
                head = read_head(file)
        except ValueError:
            return None
        if head.run != run.id:
            raise _refusal(storage, f"{name}, which belongs to another run")
        written = Written.of(head, sizes[name])
        return written if written.entry.name == name else None

    with ThreadPoolExecutor(_THREADS) as threads:
        found = [x for x in threads.map(finished, shards) if x is not None]
    listed = set(before.shards) or {x.entry for x in found}
    return {x.entry.number: x for x in found if x.entry in listed}


def _before(storage: Storage, name: str, run: Run) -> Manifest:
    """The manifest of the run that wrote the existing shards."""
    try:
        content = storage.read(name)
    except FileNotFoundError:
        what = f"shards without {MANIFEST} or {RUN}"
        raise _refusal(storage, what) from None
    before = Manifest.from_json(content, f"{name} in {storage.name!r}")
    if difference := before.run.difference(run):
        raise _refusal(storage, f"now {difference}")
    return before


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
        shards=tuple(written[x].entry for x in sorted(written)),
        names=dict(source.examples.names),
        bad=_bad(written),
        batch_size=work.batch_size,
        images_per_second=speed,
        versions=versions(),
    )


def _bad(written: dict[int, Written]) -> tuple[BadExample, ...]:
    return tuple(x for key in sorted(written) for x in written[key].bad)
