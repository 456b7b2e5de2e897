"""Search for exact ranks, without N×N memory and without sorting.

The rank of a relevant image is one more than the number of gallery images
that precede it: those with a higher score and, among equal scores, those
that stand earlier in the gallery. So a block of scores is neither sorted
nor kept: it is compared to the scores of each query's relevant images, and
what exceeds them is counted.
"""

import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from keras_dml.evaluation.ranks.counting import Counter
from keras_dml.evaluation.ranks.ranked_positives import Limits
from keras_dml.evaluation.ranks.relevance import Relevance
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.evaluation.ranks.tile import Tile
from keras_dml.utils.progress import tracked
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

SMALLEST_SIDE, LARGEST_SIDE = 64, 2048

MOST_THREADS = 16

SHARED_PRODUCT = 0.9
"""Share of a block's product from which all of it is computed at once."""

BYTES_OF_POSITIVE = 128
"""What a relevant image takes at most while its rank is found."""


Job = Callable[[], None]


@dataclass(frozen=True)
class Ranks:
    """Ranks of the relevant images of some queries.

    Attributes:
        queries: Queries that have a relevant image, (Q,).
        counts: Number of relevant images of each, R, (Q,).
        ranks: From 1, ascending for each query, one query after another;
            `BEYOND` where beyond the limit, (P,).
    """

    queries: Rows
    counts: Rows
    ranks: Rows

    @property
    def starts(self) -> Rows:
        """Where the ranks of each query start, (Q,)."""
        return np.cumsum(self.counts) - self.counts

    @property
    def first(self) -> Rows:
        """Rank of the nearest relevant image of each query, (Q,)."""
        return self.ranks[self.starts]

    def sum(self, values: np.ndarray) -> FloatArray:
        """Sums of values for each relevant image, (P,), by query, (Q,)."""
        # No query is empty, which `reduceat` would get wrong.
        sums: FloatArray = np.add.reduceat(
            values.astype(np.float64), self.starts
        )
        return sums


def search(
    scores: Scores,
    relevance: Relevance,
    limits: Limits,
    *,
    memory: int,
    symmetric: bool = False,
    progress: bool | None = None,
) -> Iterator[Ranks]:
    """Ranks of all relevant images, panel of queries by panel.

    Args:
        scores: Scores of queries against the gallery.
        relevance: Who is relevant to whom.
        limits: Ranks up to which they must be exact.
        memory: Bytes to work in.
        symmetric: Whether queries and gallery are the same images in the
            same order: half the products then suffice, if all queries
            make one panel.
        progress: Whether to show progress; None shows it in a terminal.

    Yields:
        Ranks of consecutive panels of queries, as large as half of the
        memory allows.
    """
    from threadpoolctl import threadpool_limits

    threads = _threads()
    panels = _panels(scores, relevance, memory // 2)
    side = _side(scores, memory // 4, threads)
    columns = _growing_blocks(len(scores.gallery), side)
    symmetric = symmetric and len(panels) == 1
    # One thread a product, and products side by side: threads that share
    # a product wait for each other, long if the machine has other work.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        for panel in panels:
            counter = Counter(scores, relevance, panel, limits)
            gallery = tracked(
                columns,
                len(columns),
                f"Searching for {panel.stop} of {len(scores.queries)}",
                progress,
            )
            jobs = _jobs(counter, scores, gallery, side, symmetric)
            _run(pool, jobs, 2 * threads)
            yield _ranks(counter, panel)


def _run(pool: Executor, jobs: Iterator[Job], most: int) -> None:
    """Runs jobs in their order, with at most so many waiting."""
    waiting: deque[Future[None]] = deque()
    for job in jobs:
        waiting.append(pool.submit(job))
        if len(waiting) >= most:
            waiting.popleft().result()
    for future in waiting:
        future.result()


def _jobs(
    counter: Counter,
    scores: Scores,
    gallery: Iterable[slice],
    side: int,
    symmetric: bool,
) -> Iterator[Job]:
    """Counts every pair of a query and a gallery image once."""
    queries = [] if symmetric else blocks(counter.size, side)
    for items in gallery:
        if symmetric:
            queries.append(items)
        right = scores.right(items)
        for rows in queries:
            yield functools.partial(
                _count, counter, rows, items, right, symmetric
            )


def _count(
    counter: Counter,
    queries: slice,
    items: slice,
    right: FloatArray,
    symmetric: bool,
) -> None:
    mirrored = symmetric and queries != items
    active = counter.active(queries)
    others = counter.active(items) if mirrored else active[:0]
    height, width = queries.stop - queries.start, items.stop - items.start
    needed = len(active) * width + len(others) * height
    if needed > SHARED_PRODUCT * height * width:
        values = counter.left[queries] @ right.T
        counter.count(Tile(values, counter.tolerance[queries], queries, items))
        if mirrored:
            tolerance = counter.tolerance[items]
            counter.count(Tile(values, tolerance, items, queries, True))
        return
    if len(active):
        rows = active + queries.start
        values = counter.left[rows] @ right.T
        tolerance = counter.tolerance[rows]
        counter.count(Tile(values, tolerance, queries, items, chosen=active))
    if len(others):
        values = counter.left[queries] @ right[others].T
        tolerance = counter.tolerance[others + items.start]
        counter.count(Tile(values, tolerance, items, queries, True, others))


def _ranks(counter: Counter, panel: slice) -> Ranks:
    counts = np.diff(counter.positives.starts)
    queries = np.flatnonzero(counts)
    return Ranks(
        queries + panel.start, counts[queries], counter.positives.ranks()
    )


def _threads() -> int:
    return min(os.cpu_count() or 1, MOST_THREADS)


def _panels(scores: Scores, relevance: Relevance, memory: int) -> list[slice]:
    """Consecutive queries whose factors and relevant images fit."""
    needed = BYTES_OF_POSITIVE * relevance.upper_counts
    needed = np.cumsum(needed + 4 * scores.factor_size)
    panels = []
    start, used = 0, 0
    while start < len(needed):
        stop = int(np.searchsorted(needed, used + memory, side="right"))
        stop = max(stop, start + 1)
        panels.append(slice(start, stop))
        start, used = stop, int(needed[stop - 1])
    return panels


def _side(scores: Scores, memory: int, threads: int) -> int:
    """Side of tiles of which each thread has one."""
    # Factors are float64 before they are rounded: three arrays of them.
    factor = 28 * scores.factor_size
    scale = 8 * threads
    side = int((np.sqrt(factor**2 + 2 * scale * memory) - factor) / scale)
    return min(max(side, SMALLEST_SIDE), LARGEST_SIDE)


def _growing_blocks(count: int, side: int) -> list[slice]:
    """Blocks of 64, 64, 128, 256, … up to `side` gallery images.

    At first, all relevant images matter; a look at a few gallery images
    tells which of them are certainly beyond their limit.
    """
    edges = [0]
    size = SMALLEST_SIDE
    while edges[-1] < count:
        edges.append(min(edges[-1] + min(size, side), count))
        size = max(size, edges[-1])
    return [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
