"""Searching by workers: each ranks what some of the queries retrieve."""

import contextlib
import tempfile
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from keras_dml.evaluation.ranks.panels import PanelSearch
from keras_dml.evaluation.ranks.ranks import Ranks
from keras_dml.evaluation.ranks.relevance import Images
from keras_dml.pools import Pool, RayActors, pool_of
from keras_dml.utils.lazy_rows import ArrayRows, LazyRows
from keras_dml.utils.progress import throughput
from keras_dml.utils.vectors import blocks

_MOST_PAIRS = 2 * 10**10
"""Maximum number of pairs in a panel: some minutes of one core."""

_FEWEST, _MANY = 512, 2048
"""Number of queries in a panel: with much fewer, a tenth of the time or more is
spent on what panels have in common."""

_WORKERS = 16
"""Assumed number of workers, if it is unknown."""


def searching_pool(workers: int | None, ray: str | bool | None) -> Pool | None:
    """The pool that searches; None if this process does."""
    if ray:
        # GPUs of the cluster have nothing to do here.
        return RayActors(workers, "auto" if ray is True else ray, gpus=0)
    return None if workers in (None, 1) else pool_of(workers)


def searched(
    pool: Pool,
    workers: int | None,
    work: PanelSearch,
    panels: Sequence[slice],
    progress: bool | None,
) -> Iterator[tuple[Ranks, ...]]:
    """The ranks of panels, in order.

    Args:
        pool: The pool, whose tasks are panels.
        workers: Its number of workers, if it is known.
        work: Computes a panel.
        panels: The panels that memory allows; they are divided further.
        progress: Whether to show progress; None shows it in a terminal.
    """
    queries, gallery = len(work.scores.queries), len(work.scores.gallery)
    parts = _divided(panels, queries, gallery, workers or _WORKERS)
    # Iterators of pools are generators.
    done = cast(Generator[Any, None, None], pool.run(work, parts))
    waiting = deque(parts)
    early: dict[int, tuple[Ranks, ...]] = {}
    with (
        contextlib.closing(done),
        throughput(queries, 0, "queries", "Searching", progress) as count,
    ):
        for panel in done:
            early[panel.task.start] = panel.result
            count(panel.task.stop - panel.task.start)
            while waiting and waiting[0].start in early:
                yield early.pop(waiting.popleft().start)


def _divided(
    panels: Sequence[slice], queries: int, gallery: int, workers: int
) -> list[slice]:
    """Panels that are a part of the work and take some minutes each."""
    even = max(_MANY, -(-queries // (4 * workers)))
    most = min(even, max(_FEWEST, _MOST_PAIRS // gallery))
    return [
        slice(panel.start + part.start, panel.start + part.stop)
        for panel in panels
        for part in blocks(panel.stop - panel.start, most)
    ]


@contextlib.contextmanager
def in_files(given: Sequence[Images]) -> Iterator[list[Images]]:
    """The same images, with embeddings in files, which processes share.

    Raises:
        OSError: If there is not enough space for the files.
    """
    with tempfile.TemporaryDirectory(prefix="keras_dml-") as name:
        yield [
            replace(
                images, embeddings=_in_file(images, Path(name) / f"{i}.npy")
            )
            for i, images in enumerate(given)
        ]


def _in_file(images: Images, path: Path) -> LazyRows:
    x = images.embeddings
    if isinstance(x, LazyRows):
        return x
    try:
        np.save(path, x)
    except OSError as error:
        raise OSError(
            error.errno,
            f"Embeddings of {x.nbytes:,} bytes, for workers, cannot be "
            f"written: {error.strerror}. Set TMPDIR to a folder with enough "
            "space",
            str(path),
        ) from error
    return ArrayRows(np.load(path, mmap_mode="r"), x.dtype)
