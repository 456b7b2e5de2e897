"""Search for exact ranks: in tiles, by threads, or in rows of distances."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from keras_dml.evaluation.ranks.positives import Limits, Ranks
from keras_dml.evaluation.ranks.relevance import Images, Relevance
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.evaluation.ranks.tiles import Counter, Panel
from keras_dml.utils.progress import with_progress
from keras_dml.utils.provenance import usable_cores
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

BYTES_OF_POSITIVE = 128
"""Maximum number of bytes per relevant image while its rank is computed."""

BYTES_OF_PAIR = 48
"""Bytes per pair while the distances of a block are computed."""

MAX_TIED_IMAGES = 64
"""Number of ties above which it is faster to sort all distances."""

Distances = Callable[[slice], FloatArray]
"""A function from consecutive queries to their distances, (n, G)."""

DistanceFunction = Callable[[FloatArray, FloatArray], Any]
"""A function from queries, (n, D), and a gallery, (G, D), to distances, (n,
G)."""

MIN_TILE_SIDE, MAX_TILE_SIDE = 64, 2048

MAX_THREADS = 16

FULL_PRODUCT_SHARE = 0.9
"""Share of a block's product above which all of it is computed at once."""


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
    """Ranks of all relevant images, one panel of queries at a time.

    If queries and gallery are the same object, half the products are
    sufficient, provided that all queries form one panel. `relevances` are
    those of one or several levels, and the products serve all. Yields, for
    each of them, the ranks of consecutive queries, as many as half of the
    memory, in bytes, allows; they are exact up to the limits.
    """
    scores = Scores(queries.embeddings, gallery.embeddings, distance)
    panels = _panels(scores, relevances, memory // 2)
    symmetric = queries is gallery and len(panels) == 1
    threads = _threads()
    side = _side(scores, memory // 4, threads)
    for rows in panels:
        panel = Panel.of(scores, rows)
        counters = [Counter(scores, x, panel, limits) for x in relevances]
        about = f"Searching for {rows.stop} of {len(queries)}"
        columns = _growing_blocks(len(gallery), side)
        blocks_of_gallery = with_progress(
            columns, len(columns), about, progress
        )
        _count_all(
            panel, counters, scores, blocks_of_gallery, side, threads, symmetric
        )
        yield tuple(counter.ranks() for counter in counters)


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


def _count_all(
    panel: Panel,
    counters: Sequence[Counter],
    scores: Scores,
    gallery: Iterable[slice],
    side: int,
    threads: int,
    symmetric: bool,
) -> None:
    """Counts the whole gallery for a panel, every pair once.

    If the panel is all queries, and also the gallery, which is `symmetric`,
    half the products are sufficient.
    """
    from threadpoolctl import threadpool_limits

    queries = [] if symmetric else blocks(len(panel), side)
    waiting: deque[Future[None]] = deque()
    # One thread a product, and products side by side: threads that share
    # a product wait for each other, long if the machine has other work.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        for items in gallery:
            if symmetric:
                queries.append(items)
            rhs = scores.rhs(items)
            for rows in queries:
                mirrored = symmetric and rows != items
                job = panel, counters, rows, items, rhs, mirrored
                waiting.append(pool.submit(_count, *job))
                if len(waiting) == 2 * threads:
                    waiting.popleft().result()
        for future in waiting:
            future.result()


def _count(
    panel: Panel,
    counters: Sequence[Counter],
    queries: slice,
    items: slice,
    rhs: FloatArray,
    mirrored: bool,
) -> None:
    """Counts a block, and if `mirrored` also its items as queries."""
    rows = _active(counters, queries)
    columns = _active(counters, items) if mirrored else rows[:0]
    height, width = queries.stop - queries.start, items.stop - items.start
    needed = len(rows) * width + len(columns) * height
    if needed > FULL_PRODUCT_SHARE * height * width:
        block = panel.lhs[queries] @ rhs.T
        every = np.arange(queries.start, queries.stop)
        tiles = [panel.tile(block, every, items, False)]
        if mirrored:
            every = np.arange(items.start, items.stop)
            tiles.append(panel.tile(block, every, queries, True))
        for counter in counters:
            counter.count(*tiles)
        return
    if len(rows):
        block = panel.lhs[rows] @ rhs.T
        for counter in counters:
            counter.count(panel.tile(block, rows, items, False))
    if len(columns):
        block = panel.lhs[queries] @ rhs[columns - items.start].T
        for counter in counters:
            counter.count(panel.tile(block, columns, queries, True))


def _active(counters: Sequence[Counter], queries: slice) -> Rows:
    """Those of the queries for which any counter requires more counting."""
    active = [counter.active(queries) for counter in counters]
    return active[0] if len(active) == 1 else np.unique(np.concatenate(active))


def _threads() -> int:
    # Several processes on one machine divide its cores by this variable.
    share = os.environ.get("OMP_NUM_THREADS", "")
    cores = usable_cores()
    max_threads = int(share) if share.isdigit() else cores
    return max(1, min(max_threads, cores, MAX_THREADS))


def _side(scores: Scores, memory: int, threads: int) -> int:
    """Side length of tiles, one per thread."""
    # Factors are float64 before they are rounded: three arrays of them.
    factor = 28 * scores.factor_size
    scale = 8 * threads
    side = int((np.sqrt(factor**2 + 2 * scale * memory) - factor) / scale)
    return min(max(side, MIN_TILE_SIDE), MAX_TILE_SIDE)


def _growing_blocks(count: int, side: int) -> list[slice]:
    """Blocks of 64, 64, 128, 256, … up to `side` gallery images.

    At first, all relevant images matter; a few gallery images show which of
    them are certainly beyond their limit.
    """
    edges = [0]
    size = MIN_TILE_SIDE
    while edges[-1] < count:
        edges.append(min(edges[-1] + min(size, side), count))
        size = max(size, edges[-1])
    return [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]


def dense_search(
    queries: Images,
    gallery: Images,
    relevances: Sequence[Relevance],
    distances: Distances,
    *,
    memory: int,
    progress: bool | None = None,
) -> Iterator[tuple[Ranks, ...]]:
    """Ranks of all relevant images, as by `search`, from any distances.

    Every row is sorted as a whole; equal distances are ranked in the order of
    the gallery. There are no limits: all ranks are exact. At least one query is
    ranked at a time, whatever the memory.
    """
    max_count = max(int(np.max(x.upper_counts)) for x in relevances)
    bytes_each = BYTES_OF_PAIR * len(gallery) + BYTES_OF_POSITIVE * max_count
    parts = blocks(len(queries), max(1, memory // bytes_each))
    about = f"Ranking {len(queries)} queries"
    for rows in with_progress(parts, len(parts), about, progress):
        block = distances(rows)
        yield tuple(_ranks(block, relevance, rows) for relevance in relevances)


def by_function(
    function: DistanceFunction, queries: FloatArray, gallery: FloatArray
) -> Distances:
    """Wraps a user's distance function, whose results are checked."""

    def distances(rows: slice) -> FloatArray:
        block = np.asarray(function(queries[rows], gallery), np.float64)
        shape = rows.stop - rows.start, len(gallery)
        if block.shape != shape or np.isnan(block).any():
            raise ValueError(
                "`distance` must be a function of queries, (n, D), and a "
                "gallery, (G, D), that returns distances, (n, G), without "
                f"NaN. Received: shape {block.shape} for {shape}, "
                f"{int(np.isnan(block).sum())} NaN."
            )
        return block

    return distances


def _ranks(distances: FloatArray, relevance: Relevance, rows: slice) -> Ranks:
    positives, ignored, _ = relevance.of(rows)
    # NaN is sorted behind all numbers, and equals none.
    distances = distances.copy()
    distances[ignored.owners, ignored.items] = np.nan
    lists = np.split(positives.items, positives.starts[1:-1])
    positions = map(_positions, distances, lists)
    ranks = 1 + np.concatenate(list(positions))
    order = np.lexsort((ranks, positives.owners))
    queries = np.flatnonzero(positives.counts)
    gains = positives.gains
    return Ranks(
        queries + rows.start,
        positives.counts[queries],
        ranks[order],
        relevance.ids[queries + rows.start],
        None if gains is None else gains[order],
    )


def _positions(distances: FloatArray, items: Rows) -> Rows:
    """Positions of some images in a query's ranking, from 0, (n,)."""
    values, ordered = distances[items], np.sort(distances)
    positions: Rows = np.searchsorted(ordered, values, "left")
    last = np.searchsorted(ordered, values, "right") - 1
    tied = np.flatnonzero(last > positions)
    if len(tied) > MAX_TIED_IMAGES:
        every = np.empty(len(distances), np.int64)
        every[np.argsort(distances, kind="stable")] = np.arange(len(distances))
        return every[items]
    for one in tied:
        earlier = distances[: items[one]] == values[one]
        positions[one] += np.count_nonzero(earlier)
    return positions
