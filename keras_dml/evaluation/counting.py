"""Counting, for each relevant image, the gallery images that precede it."""

import threading
from dataclasses import replace

import numpy as np

from keras_dml.evaluation.relevance import Relevance
from keras_dml.evaluation.scores import Scores
from keras_dml.evaluation.slots import Keys, Limits, Slots
from keras_dml.evaluation.tile import Pairs, Tile
from keras_dml.evaluation.vectors import blocks, within
from keras_dml.types import Rows

UNDECIDED_SHARE = 1 / 16
"""With more undecided pairs, a float64 product is faster than one by one."""


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
        self._query_labels = relevance.query_labels[panel]
        self._gallery_labels = relevance.gallery_labels
        positives = relevance.positives(panel)
        exact = scores.exact(positives.owners + panel.start, positives.items)
        self.slots = Slots(positives, exact, limits)
        self.left = np.empty((self.size, scores.factor_size), np.float32)
        self.tolerance = np.empty(self.size)
        for rows in blocks(self.size, 4096):
            self.left[rows] = scores.left(within(panel, rows))
            self.tolerance[rows] = scores.tolerance(self.left[rows])
        self._lowest = self.slots.lowest(slice(0, self.size)) - scores.offset

    def count(self, tile: Tile) -> None:
        """Counts a block of float32 scores; several threads may do so."""
        keys = Keys(self.slots, tile.queries, self._scores.offset)
        for band in tile.bands():
            slots = self._best_preceded(band, keys)
            with self._lock:
                self.slots.note(band.queries, slots)
        with self._lock:
            lowest = self.slots.lowest(tile.queries)
            self._lowest[tile.queries] = lowest - self._scores.offset

    def _best_preceded(self, band: Tile, keys: Keys) -> Rows:
        """For each image that precedes any slot, the best that it does."""
        pairs = band.reaching(self._lowest[band.queries])
        others = (
            self._query_labels[pairs.query] != self._gallery_labels[pairs.item]
        )
        pairs = pairs.select(others)
        slots, unsure = keys.locate(pairs)
        if len(unsure) > UNDECIDED_SHARE * band.values.size:
            wide = self._in_float64(band, pairs.select(unsure))
            slots[unsure], still_unsure = keys.locate(wide)
            unsure = unsure[still_unsure]
            undecided = wide.select(still_unsure)
        else:
            undecided = pairs.select(unsure)
        slots[unsure] = self._decide(undecided, keys)
        precedes_any = slots > self.slots.starts[pairs.query]
        return slots[precedes_any] - 1

    def _decide(self, pairs: Pairs, keys: Keys) -> Rows:
        exact = self._scores.exact(pairs.query + self._panel.start, pairs.item)
        # A large tolerance may reach back to the slots of other queries.
        first = self.slots.starts[pairs.query]
        lowest = np.maximum(keys.locate_lowest(pairs), first)
        return self.slots.advance(lowest, pairs, exact)

    def _in_float64(self, band: Tile, pairs: Pairs) -> Pairs:
        left = self._scores.left(within(self._panel, band.queries), np.float64)
        right = self._scores.right(band.items, np.float64)
        query = pairs.query - band.queries.start
        return replace(
            pairs,
            score=(left @ right.T)[query, pairs.item - band.items.start],
            tolerance=self._scores.tolerance(left)[query],
        )
