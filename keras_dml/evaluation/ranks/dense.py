"""Ranks by distances of any kind, which come as whole rows."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_dml.evaluation.ranks.relevance import Images, Positives, Relevance
from keras_dml.evaluation.ranks.search import BYTES_OF_POSITIVE, Ranks
from keras_dml.utils.progress import tracked
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

BYTES_OF_PAIR = 40
"""Distance, order and place of a pair while a block is ranked."""

Distances = Callable[[slice], FloatArray]
"""From consecutive queries to their distances to the gallery, (n, G)."""

DistanceFunction = Callable[[FloatArray, FloatArray], Any]
"""From queries, (n, D), and a gallery, (G, D), to distances, (n, G)."""


def dense_search(
    queries: Images,
    gallery: Images,
    relevances: Sequence[Relevance],
    distances: Distances,
    *,
    memory: int,
    progress: bool | None = None,
) -> Iterator[tuple[Ranks, ...]]:
    """Ranks of all relevant images, block of queries by block.

    Every block is sorted as a whole; equal distances rank in the order of
    the gallery. There are no limits: all ranks are exact.

    Args:
        queries, gallery, relevances, progress: As for `search`.
        distances: Distances of a block, of which the smallest is nearest.
        memory: Bytes to work in; at least one query is ranked at a time.

    Yields:
        For each relevance the ranks of a block of consecutive queries.
    """
    most = max(int(np.max(x.upper_counts)) for x in relevances)
    bytes_each = BYTES_OF_PAIR * len(gallery) + BYTES_OF_POSITIVE * most
    parts = blocks(len(queries), max(1, memory // bytes_each))
    about = f"Ranking {len(queries)} queries"
    for rows in tracked(parts, len(parts), about, progress):
        places = _places(distances(rows))
        yield tuple(_ranks(places, relevance, rows) for relevance in relevances)


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


def _places(distances: FloatArray) -> Rows:
    """Place of every gallery image in the ranking of its row, from 0."""
    order = np.argsort(distances, axis=1, kind="stable")
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(order.shape[1])[None], axis=1)
    return places


def _ranks(places: Rows, relevance: Relevance, rows: slice) -> Ranks:
    positives, ignored, _ = relevance.of(rows)
    owners = positives.owners
    at = places[owners, positives.items]
    order = np.lexsort((at, owners))
    at = at[order]
    ranks = 1 + at - _before(at, owners, places, ignored)
    found = np.flatnonzero(positives.counts)
    gains = positives.gains
    return Ranks(
        found + rows.start,
        positives.counts[found],
        ranks,
        relevance.ids[found + rows.start],
        None if gains is None else gains[order],
    )


def _before(at: Rows, owners: Rows, places: Rows, ignored: Positives) -> Rows:
    """How many images that take no rank stand before some places, (P,)."""
    width = places.shape[1]
    taken = ignored.owners * width + places[ignored.owners, ignored.items]
    taken.sort()
    own = owners * width
    found: Rows = np.searchsorted(taken, own + at) - np.searchsorted(taken, own)
    return found
