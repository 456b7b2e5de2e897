"""Counter of the gallery images that precede each relevant image."""

import threading
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.ranks.ranked_positives import (
    Keys,
    Limits,
    RankedPositives,
)
from keras_dml.evaluation.ranks.relevance import Relevance
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.evaluation.ranks.tile import Pairs, Tile
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, within

UNDECIDED_SHARE = 1 / 16
"""With more undecided pairs, a float64 product is faster than one by one."""

COUNTED_SHARE = 1 / 64
"""With more preceding images, two more comparisons of all are faster."""


class Counter:
    """Ranks of the relevant images of a panel of queries.

    Only images of other classes are counted. The order among the relevant
    images of a query is known from their exact scores, and images of its
    class that are not relevant (itself, the excluded) take no rank.

    Args:
        scores: Scores of queries against the gallery.
        relevance: Who is relevant to whom.
        panel: The queries; within the counter they are numbered from 0.
        limits: Ranks up to which they must be exact.
    """

    def __init__(
        self,
        scores: Scores,
        relevance: Relevance,
        panel: slice,
        limits: Limits,
    ) -> None:
        self.size = panel.stop - panel.start
        self._panel = panel
        self._scores = scores
        self._lock = threading.Lock()
        self._query_labels = relevance.queries.labels[panel]
        self._gallery_labels = relevance.gallery.labels
        positives, self._ignored = relevance.of(panel)
        exact = scores.exact(positives.owners + panel.start, positives.items)
        self.positives = RankedPositives(positives, exact, limits)
        self.left = np.empty((self.size, scores.factor_size), np.float32)
        self._tolerance = np.empty(self.size)
        for rows in blocks(self.size, 4096):
            self.left[rows] = scores.left(within(panel, rows))
            self._tolerance[rows] = scores.tolerance(self.left[rows])
        self._cutoffs = np.empty(self.size)
        self._only_best = np.empty(self.size, bool)
        self._update(slice(0, self.size))

    def active(self, queries: slice) -> Rows:
        """Those of some queries that need more counting."""
        needed = self._cutoffs[queries] < np.inf
        return np.flatnonzero(needed) + queries.start

    def count(
        self,
        values: FloatArray,
        rows: Rows,
        items: slice,
        mirrored: bool = False,
    ) -> None:
        """Counts the scores of a `Tile`; several threads may do so."""
        tile = Tile(values, self._tolerance[rows], rows, items, mirrored)
        keys = Keys(self.positives, tile.span, self._scores.offset)
        for band in tile.bands():
            where, above = self._compared(band)
            places = self._best_preceded(band, where, keys)
            with self._lock:
                self.positives.note(band.span, places)
                if above is not None:
                    self.positives.note_best(band.rows, above)
        with self._lock:
            self._update(tile.span)

    def _update(self, queries: slice) -> None:
        cutoffs, matter = self.positives.cutoffs(queries)
        self._cutoffs[queries] = cutoffs - self._scores.offset
        self._only_best[queries] = matter == 1

    def _compared(self, band: Tile) -> tuple[NDArray[np.bool_], Rows | None]:
        """Where to look closer, and how many images certainly precede all.

        Of a query of which only the best positive matters, what is
        certainly better need not be looked at; that is counted at once
        where it is much.
        """
        cutoffs = self._cutoffs[band.rows]
        only_best = self._only_best[band.rows]
        where = band.reaching(cutoffs)
        many = COUNTED_SHARE * where.size
        if not only_best.any() or np.count_nonzero(where) <= many:
            return where, None
        above = band.exceeding(np.where(only_best, cutoffs, np.inf))
        where ^= above
        # Relevant images are no better than the best; others take no rank.
        above[band.find(self._ignored)] = False
        return where, band.counts(above)

    def _best_preceded(
        self, band: Tile, where: NDArray[np.bool_], keys: Keys
    ) -> Rows:
        """For each image that precedes any positive, the best such place."""
        pairs = band.pairs(where)
        others = (
            self._query_labels[pairs.query] != self._gallery_labels[pairs.item]
        )
        pairs = pairs.select(others)
        places, unsure = keys.locate(pairs)
        undecided = pairs.select(unsure)
        if len(unsure) > UNDECIDED_SHARE * band.values.size:
            undecided = self._in_float64(band, undecided)
            places[unsure], still = keys.locate(undecided)
            unsure, undecided = unsure[still], undecided.select(still)
        places[unsure] = self._decide(undecided, keys)
        precedes_any = places > self.positives.starts[pairs.query]
        return places[precedes_any] - 1

    def _decide(self, pairs: Pairs, keys: Keys) -> Rows:
        exact = self._scores.exact(pairs.query + self._panel.start, pairs.item)
        # A large tolerance may reach back to the places of other queries.
        first = self.positives.starts[pairs.query]
        bounds = np.maximum(keys.lower_bounds(pairs), first)
        return self.positives.advance(bounds, pairs, exact)

    def _in_float64(self, band: Tile, pairs: Pairs) -> Pairs:
        rows = band.rows
        left = self._scores.left(rows + self._panel.start, np.float64)
        right = self._scores.right(band.items, np.float64)
        query = np.searchsorted(rows, pairs.query)
        return replace(
            pairs,
            score=(left @ right.T)[query, pairs.item - band.items.start],
            tolerance=self._scores.tolerance(left)[query],
        )
