"""Search for exact ranks: queries and gallery, block by block, in threads."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from keras_dml.evaluation.ranks.counting import Counter, Panel
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
        labels: Class of each query, (Q,); of a query with several labels
            a number for the set of them.
        graded: How much each relevant image counts, (P,), where some
            count more than others; see `gains`.
    """

    queries: Rows
    counts: Rows
    ranks: Rows
    labels: Rows | None = None
    graded: FloatArray | None = None

    @property
    def starts(self) -> Rows:
        """Where the ranks of each query start, (Q,)."""
        return np.cumsum(self.counts) - self.counts

    @property
    def first(self) -> Rows:
        """Rank of the nearest relevant image of each query, (Q,)."""
        return self.ranks[self.starts]

    @property
    def gains(self) -> FloatArray:
        """How much each relevant image counts, (P,): 1 unless graded."""
        if self.graded is None:
            return np.ones(len(self.ranks))
        return self.graded

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
    relevances: Sequence[Relevance],
    distance: str,
    limits: Limits,
    *,
    memory: int,
    progress: bool | None = None,
) -> Iterator[tuple[Ranks, ...]]:
    """Ranks of all relevant images, panel of queries by panel.

    Args:
        queries: Images that are searched for.
        gallery: Images to search among. If they are the same object, half
            the products suffice, provided all queries make one panel.
        relevances: Who is relevant to whom, for one level or several; the
            products serve all.
        distance: "cosine", "euclidean" or "dot".
        limits: Ranks up to which they must be exact.
        memory: Bytes to work in.
        progress: Whether to show progress; None shows it in a terminal.

    Yields:
        For each relevance the ranks of a panel of consecutive queries, as
        large as half of the memory allows.
    """
    from threadpoolctl import threadpool_limits

    scores = Scores(queries.embeddings, gallery.embeddings, distance)
    threads = _threads()
    panels = _panels(scores, relevances, memory // 2)
    side = _side(scores, memory // 4, threads)
    columns = _growing_blocks(len(gallery), side)
    symmetric = queries is gallery and len(panels) == 1
    # One thread a product, and products side by side: threads that share
    # a product wait for each other, long if the machine has other work.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        for rows in panels:
            panel = Panel.of(scores, rows)
            counters = [Counter(scores, x, panel, limits) for x in relevances]
            about = f"Searching for {rows.stop} of {len(queries)}"
            gallery_blocks = tracked(columns, len(columns), about, progress)
            waiting: deque[Future[None]] = deque()
            for job in _jobs(panel, scores, gallery_blocks, side, symmetric):
                waiting.append(pool.submit(_count, panel, counters, *job))
                if len(waiting) == 2 * threads:
                    waiting.popleft().result()
            for future in waiting:
                future.result()
            yield tuple(
                _ranks(counter, relevance, rows.start)
                for counter, relevance in zip(counters, relevances, strict=True)
            )


def _ranks(counter: Counter, relevance: Relevance, start: int) -> Ranks:
    positives = counter.positives
    counts = np.diff(positives.starts)
    found = np.flatnonzero(counts)
    queries = found + start
    return Ranks(
        queries,
        counts[found],
        positives.ranks(),
        relevance.ids[queries],
        positives.gains(),
    )


def _jobs(
    panel: Panel,
    scores: Scores,
    gallery: Iterable[slice],
    side: int,
    symmetric: bool,
) -> Iterator[Job]:
    """What `_count` takes, so that every pair is counted once."""
    queries = [] if symmetric else blocks(len(panel), side)
    for items in gallery:
        if symmetric:
            queries.append(items)
        right = scores.right(items)
        for rows in queries:
            mirrored = symmetric and rows != items
            yield rows, items, right, mirrored


def _count(
    panel: Panel,
    counters: Sequence[Counter],
    queries: slice,
    items: slice,
    right: FloatArray,
    mirrored: bool,
) -> None:
    """Counts a block, and if `mirrored` also its items as queries."""
    rows = _active(counters, queries)
    others = _active(counters, items) if mirrored else rows[:0]
    height, width = queries.stop - queries.start, items.stop - items.start
    needed = len(rows) * width + len(others) * height
    if needed > SHARED_PRODUCT * height * width:
        values = panel.left[queries] @ right.T
        rows = np.arange(queries.start, queries.stop)
        for counter in counters:
            counter.count(values, rows, items)
            if mirrored:
                others = np.arange(items.start, items.stop)
                counter.count(values, others, queries, mirrored=True)
        return
    if len(rows):
        values = panel.left[rows] @ right.T
        for counter in counters:
            counter.count(values, rows, items)
    if len(others):
        values = panel.left[queries] @ right[others - items.start].T
        for counter in counters:
            counter.count(values, others, queries, mirrored=True)


def _active(counters: Sequence[Counter], queries: slice) -> Rows:
    """Those of some queries that any counter needs to count more of."""
    active = [counter.active(queries) for counter in counters]
    return active[0] if len(active) == 1 else np.unique(np.concatenate(active))


def _threads() -> int:
    return min(os.cpu_count() or 1, MOST_THREADS)


def _panels(
    scores: Scores, relevances: Sequence[Relevance], memory: int
) -> list[slice]:
    """Consecutive queries whose factors and relevant images fit."""
    counts = sum(relevance.upper_counts for relevance in relevances)
    needed = BYTES_OF_POSITIVE * np.asarray(counts)
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
