"""Search for exact ranks: queries and gallery, block by block, in threads."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from keras_dml.evaluation.ranks.counting import Counter
from keras_dml.evaluation.ranks.ranked_positives import Limits
from keras_dml.evaluation.ranks.relevance import Images, Relevance
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.utils.progress import tracked
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

SMALLEST_SIDE, LARGEST_SIDE = 64, 2048

MOST_THREADS = 16

SHARED_PRODUCT = 0.9
"""Share of a block's product from which all of it is computed at once."""

BYTES_OF_POSITIVE = 128
"""What a relevant image takes at most while its rank is found."""

Job = tuple[slice, slice, FloatArray, bool]
"""Queries, gallery images, their right factor, and whether it serves both."""


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
    queries: Images,
    gallery: Images,
    distance: str,
    limits: Limits,
    *,
    memory: int,
    progress: bool | None = None,
) -> Iterator[Ranks]:
    """Ranks of all relevant images, panel of queries by panel.

    Args:
        queries: Images that are searched for.
        gallery: Images to search among. If they are the same object, half
            the products suffice, provided all queries make one panel.
        distance: "cosine", "euclidean" or "dot".
        limits: Ranks up to which they must be exact.
        memory: Bytes to work in.
        progress: Whether to show progress; None shows it in a terminal.

    Yields:
        Ranks of consecutive panels of queries, as large as half of the
        memory allows.
    """
    from threadpoolctl import threadpool_limits

    scores = Scores(queries.embeddings, gallery.embeddings, distance)
    relevance = Relevance(queries, gallery)
    threads = _threads()
    panels = _panels(scores, relevance, memory // 2)
    side = _side(scores, memory // 4, threads)
    columns = _growing_blocks(len(gallery), side)
    symmetric = queries is gallery and len(panels) == 1
    # One thread a product, and products side by side: threads that share
    # a product wait for each other, long if the machine has other work.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        for panel in panels:
            counter = Counter(scores, relevance, panel, limits)
            about = f"Searching for {panel.stop} of {len(queries)}"
            gallery_blocks = tracked(columns, len(columns), about, progress)
            waiting: deque[Future[None]] = deque()
            for job in _jobs(counter, scores, gallery_blocks, side, symmetric):
                waiting.append(pool.submit(_count, counter, *job))
                if len(waiting) == 2 * threads:
                    waiting.popleft().result()
            for future in waiting:
                future.result()
            counts = np.diff(counter.positives.starts)
            found = np.flatnonzero(counts)
            ranks = counter.positives.ranks()
            yield Ranks(found + panel.start, counts[found], ranks)


def _jobs(
    counter: Counter,
    scores: Scores,
    gallery: Iterable[slice],
    side: int,
    symmetric: bool,
) -> Iterator[Job]:
    """What `_count` takes, so that every pair is counted once."""
    queries = [] if symmetric else blocks(counter.size, side)
    for items in gallery:
        if symmetric:
            queries.append(items)
        right = scores.right(items)
        for rows in queries:
            mirrored = symmetric and rows != items
            yield rows, items, right, mirrored


def _count(
    counter: Counter,
    queries: slice,
    items: slice,
    right: FloatArray,
    mirrored: bool,
) -> None:
    """Counts a block, and if `mirrored` also its items as queries."""
    rows = counter.active(queries)
    others = counter.active(items) if mirrored else rows[:0]
    height, width = queries.stop - queries.start, items.stop - items.start
    needed = len(rows) * width + len(others) * height
    if needed > SHARED_PRODUCT * height * width:
        values = counter.left[queries] @ right.T
        counter.count(values, np.arange(queries.start, queries.stop), items)
        if mirrored:
            others = np.arange(items.start, items.stop)
            counter.count(values, others, queries, mirrored=True)
        return
    if len(rows):
        counter.count(counter.left[rows] @ right.T, rows, items)
    if len(others):
        values = counter.left[queries] @ right[others - items.start].T
        counter.count(values, others, queries, mirrored=True)


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
