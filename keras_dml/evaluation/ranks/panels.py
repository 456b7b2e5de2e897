"""A panel of queries, and the search for their ranks, here or elsewhere."""

import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from keras_dml.evaluation.ranks.counting import Counter, Panel
from keras_dml.evaluation.ranks.ranked_positives import Limits
from keras_dml.evaluation.ranks.ranks import Ranks
from keras_dml.evaluation.ranks.relevance import Relevance
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.evaluation.ranks.tiles import Block
from keras_dml.pools import Work
from keras_dml.utils.progress import tracked
from keras_dml.utils.provenance import usable_cores
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, within

SMALLEST_SIDE, LARGEST_SIDE = 64, 2048

MOST_THREADS = 16

SHARED_PRODUCT = 0.9
"""Share of a block's product above which all of it is computed at once."""

Job = tuple[slice, slice, FloatArray, bool]
"""Queries, gallery images, their right factor, and whether it serves both."""


@dataclass(frozen=True)
class PanelSearch(Work[slice, tuple[Ranks, ...]]):
    """Finds the ranks of consecutive queries, one panel at a time.

    When it is the work of a pool, the tasks are panels.

    Attributes:
        scores: Scores of all queries against the gallery.
        relevances: Which images are relevant to which query, for one or
            several levels; the products serve all.
        limits: Ranks up to which they must be exact.
        memory: Number of bytes for blocks of the gallery.
    """

    scores: Scores
    relevances: Sequence[Relevance]
    limits: Limits
    memory: int

    def start(self) -> Callable[[slice], tuple[Ranks, ...]]:
        return functools.partial(self.of, progress=False)

    def called(self, task: slice) -> str:
        return f"queries {task.start} to {task.stop - 1}"

    def of(
        self,
        rows: slice,
        symmetric: bool = False,
        progress: bool | None = None,
    ) -> tuple[Ranks, ...]:
        """Ranks of some queries, for each relevance.

        Args:
            rows: The queries.
            symmetric: Whether they are all queries, and also the gallery, so
                that half the products are sufficient.
            progress: Whether to show progress; None shows it in a terminal.
        """
        from threadpoolctl import threadpool_limits

        threads = _threads()
        size = len(self.scores.gallery)
        side = _side(self.scores, self.memory, threads)
        columns = _growing_blocks(size, side)
        panel = Panel.of(self.scores, rows)
        counters = [
            Counter(self.scores, x, panel, self.limits) for x in self.relevances
        ]
        about = f"Searching for {rows.stop} of {len(self.scores.queries)}"
        gallery = tracked(columns, len(columns), about, progress)
        waiting: deque[Future[None]] = deque()
        # One thread a product, and products side by side: threads that share
        # a product wait for each other, long if the machine has other work.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
            for job in _jobs(panel, self.scores, gallery, side, symmetric):
                waiting.append(pool.submit(_count, panel, counters, *job))
                if len(waiting) == 2 * threads:
                    waiting.popleft().result()
            for future in waiting:
                future.result()
        return tuple(
            _ranks(counter, relevance, rows.start)
            for counter, relevance in zip(
                counters, self.relevances, strict=True
            )
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
    """The arguments of `_count` for which every pair is counted once."""
    queries = [] if symmetric else blocks(len(panel), side)
    for items in gallery:
        if symmetric:
            queries.append(items)
        right = _right(scores, items)
        for rows in queries:
            mirrored = symmetric and rows != items
            yield rows, items, right, mirrored


def _right(scores: Scores, items: slice) -> FloatArray:
    """The right factor of some images."""
    size = items.stop - items.start
    right = np.empty((size, scores.factor_size), np.float32)
    for part in scores.gallery.blocks(items):
        right[part] = scores.right(within(items, part))
    return right


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
        block = Block(panel.left[queries] @ right.T)
        rows = np.arange(queries.start, queries.stop)
        for counter in counters:
            counter.count(block, rows, items)
            if mirrored:
                others = np.arange(items.start, items.stop)
                counter.count(block, others, queries, mirrored=True)
        return
    if len(rows):
        block = Block(panel.left[rows] @ right.T)
        for counter in counters:
            counter.count(block, rows, items)
    if len(others):
        right = right[others - items.start]
        block = Block(panel.left[queries] @ right.T)
        for counter in counters:
            counter.count(block, others, queries, mirrored=True)


def _active(counters: Sequence[Counter], queries: slice) -> Rows:
    """The queries among some of which any counter needs to count more."""
    active = [counter.active(queries) for counter in counters]
    return active[0] if len(active) == 1 else np.unique(np.concatenate(active))


def _threads() -> int:
    # Workers of a pool are told their share of the cores by this.
    share = os.environ.get("OMP_NUM_THREADS", "")
    cores = usable_cores()
    most = int(share) if share.isdigit() else cores
    return max(1, min(most, cores, MOST_THREADS))


def _side(scores: Scores, memory: int, threads: int) -> int:
    """Side length of tiles, one per thread."""
    # Factors are float64 before they are rounded: three arrays of them.
    factor = 28 * scores.factor_size
    scale = 8 * threads
    side = int((np.sqrt(factor**2 + 2 * scale * memory) - factor) / scale)
    return min(max(side, SMALLEST_SIDE), LARGEST_SIDE)


def _growing_blocks(count: int, side: int) -> list[slice]:
    """Blocks of 64, 64, 128, 256, … up to `side` gallery images.

    At first, all relevant images matter; a few gallery images show which of
    them are certainly beyond their limit.
    """
    edges = [0]
    size = SMALLEST_SIDE
    while edges[-1] < count:
        edges.append(min(edges[-1] + min(size, side), count))
        size = max(size, edges[-1])
    return [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
