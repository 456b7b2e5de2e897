"""Ranks from distances of any kind, computed in whole rows."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_dml.evaluation.ranks.positives import Ranks
from keras_dml.evaluation.ranks.relevance import Images, Relevance
from keras_dml.evaluation.ranks.search import BYTES_OF_POSITIVE
from keras_dml.utils.progress import tracked
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

BYTES_OF_PAIR = 48
"""Bytes per pair while the distances of a block are computed."""

MOST_TIED = 64
"""Number of tied images in a row above which sorting all of it is faster."""

Distances = Callable[[slice], FloatArray]
"""A function from consecutive queries to their distances, (n, G)."""

DistanceFunction = Callable[[FloatArray, FloatArray], Any]
"""A function from queries, (n, D), and a gallery, (G, D), to distances, (n,
G)."""


def dense_search(
    queries: Images,
    gallery: Images,
    relevances: Sequence[Relevance],
    distances: Distances,
    *,
    memory: int,
    progress: bool | None = None,
) -> Iterator[tuple[Ranks, ...]]:
    """Ranks of all relevant images, one block of queries at a time.

    Every row is sorted as a whole; equal distances are ranked in the order of
    the gallery. There are no limits: all ranks are exact.

    Args:
        queries, gallery, relevances, progress: See `search`.
        distances: Function that returns the distances of a block, with the
            smallest for the nearest.
        memory: Number of bytes to use; at least one query is ranked at a time.

    Yields:
        For each relevance, the ranks of a block of consecutive queries.
    """
    most = max(int(np.max(x.upper_counts)) for x in relevances)
    bytes_each = BYTES_OF_PAIR * len(gallery) + BYTES_OF_POSITIVE * most
    parts = blocks(len(queries), max(1, memory // bytes_each))
    about = f"Ranking {len(queries)} queries"
    for rows in tracked(parts, len(parts), about, progress):
        found = distances(rows)
        yield tuple(_ranks(found, relevance, rows) for relevance in relevances)


def by_function(
    function: DistanceFunction, queries: FloatArray, gallery: FloatArray
) -> Distances:
    """The distances of a user's function, checked."""

    def distances(rows: slice) -> FloatArray:
        found = np.asarray(function(queries[rows], gallery), np.float64)
        wanted = rows.stop - rows.start, len(gallery)
        if found.shape != wanted or np.isnan(found).any():
            raise ValueError(
                "`distance` must be a function of queries, (n, D), and a "
                "gallery, (G, D), that returns distances, (n, G), without "
                f"NaN. Received: shape {found.shape} for {wanted}, "
                f"{int(np.isnan(found).sum())} NaN."
            )
        return found

    return distances


def _ranks(distances: FloatArray, relevance: Relevance, rows: slice) -> Ranks:
    positives, ignored, _ = relevance.of(rows)
    # What is not a number comes after all others, and equals none.
    distances = distances.copy()
    distances[ignored.owners, ignored.items] = np.nan
    lists = np.split(positives.items, positives.starts[1:-1])
    places = map(_places, distances, lists)
    ranks = 1 + np.concatenate(list(places))
    order = np.lexsort((ranks, positives.owners))
    found = np.flatnonzero(positives.counts)
    gains = positives.gains
    return Ranks(
        found + rows.start,
        positives.counts[found],
        ranks[order],
        relevance.ids[found + rows.start],
        None if gains is None else gains[order],
    )


def _places(distances: FloatArray, items: Rows) -> Rows:
    """Positions of some images in the ranking of a row, from 0, (n,)."""
    own, ordered = distances[items], np.sort(distances)
    places: Rows = np.searchsorted(ordered, own, "left")
    last = np.searchsorted(ordered, own, "right") - 1
    tied = np.flatnonzero(last > places)
    if len(tied) > MOST_TIED:
        every = np.empty(len(distances), np.int64)
        every[np.argsort(distances, kind="stable")] = np.arange(len(distances))
        return every[items]
    for one in tied:
        earlier = distances[: items[one]] == own[one]
        places[one] += np.count_nonzero(earlier)
    return places
