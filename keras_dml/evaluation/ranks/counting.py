"""Counter of the gallery images that precede each relevant image, by tiles."""

import threading
from dataclasses import dataclass, replace

import numpy as np

from keras_dml.evaluation.ranks.ranked_positives import (
    Keys,
    Limits,
    Pairs,
    RankedPositives,
)
from keras_dml.evaluation.ranks.relevance import Relevance
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.evaluation.ranks.tiles import Block, Comparison, Tile
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import within

UNDECIDED_SHARE = 1 / 16
"""Share of undecided pairs above which a float64 product is faster."""


@dataclass(frozen=True)
class Panel:
    """Queries whose ranks are found together.

    Attributes:
        rows: Their positions among all queries.
        left: Their left factor, (n, D + 2).
        tolerance: Bound on the error of each query's scores, (n,).
    """

    rows: slice
    left: FloatArray
    tolerance: FloatArray

    @classmethod
    def of(cls, scores: Scores, rows: slice) -> "Panel":
        """The panel of some queries."""
        size = rows.stop - rows.start
        left = np.empty((size, scores.factor_size), np.float32)
        tolerance = np.empty(size)
        for part in scores.queries.blocks(rows):
            left[part] = scores.left(within(rows, part))
            tolerance[part] = scores.tolerance(left[part])
        return cls(rows, left, tolerance)

    def __len__(self) -> int:
        return len(self.left)


class Counter:
    """Ranks of the relevant images of a panel of queries.

    Only images of other classes are counted. The order of the relevant images
    of a query is known from their exact scores, and images of its class that
    are not relevant (itself, excluded images) do not take a rank.

    Args:
        scores: Scores of queries against the gallery.
        relevance: Which images are relevant to which query.
        panel: The queries; within the counter they are numbered from 0.
        limits: Ranks up to which they must be exact.
    """

    def __init__(
        self,
        scores: Scores,
        relevance: Relevance,
        panel: Panel,
        limits: Limits,
    ) -> None:
        self._panel = panel
        self._scores = scores
        self._lock = threading.Lock()
        positives, self._ignored, self._apart = relevance.of(panel.rows)
        first = panel.rows.start
        exact = scores.exact(positives.owners + first, positives.items)
        self.positives = RankedPositives(positives, exact, limits)
        self._cutoffs = np.empty(len(panel))
        self._only_best = np.empty(len(panel), bool)
        self._update(slice(0, len(panel)))

    def active(self, queries: slice) -> Rows:
        """The queries among some that require more counting."""
        needed = self._cutoffs[queries] < np.inf
        return np.flatnonzero(needed) + queries.start

    def count(
        self,
        block: Block,
        rows: Rows,
        items: slice,
        mirrored: bool = False,
    ) -> None:
        """Counts the scores of a `Tile`; several threads may do so.

        Args:
            block: The scores.
            rows, items, mirrored: See `Tile`.
        """
        values = block.values
        tile = Tile(values, self._panel.tolerance[rows], rows, items, mirrored)
        keys = Keys(self.positives, tile.span, self._scores.offset)
        compared = Comparison(
            tile, block, self._cutoffs[rows], self._only_best[rows]
        )
        found = compared.few()
        if found is None:
            found = self._note_bands(tile, compared, keys)
        if len(found):
            self._note(tile, slice(0, len(values)), found, keys)
        counts = compared.counts(self._ignored)
        with self._lock:
            self.positives.note_best(rows, counts)
            self._update(tile.span)

    def _note_bands(self, tile: Tile, compared: Comparison, keys: Keys) -> Rows:
        """Records what bands with many positions have; returns the others.

        What a few of many bands have is examined at once.
        """
        few: list[Rows] = []
        for band in tile.bands():
            found = compared.examine(band)
            if len(found) > UNDECIDED_SHARE * tile.values[band].size:
                self._note(tile, band, found, keys)
            else:
                few.append(found)
        return np.concatenate([np.empty(0, np.int64), *few])

    def _update(self, queries: slice) -> None:
        cutoffs, matter = self.positives.cutoffs(queries)
        self._cutoffs[queries] = cutoffs - self._scores.offset
        self._only_best[queries] = matter == 1

    def _note(self, tile: Tile, band: slice, found: Rows, keys: Keys) -> None:
        """Records images at the best positives that they precede.

        Args:
            tile: The scores.
            band: Rows of the tile.
            found: Positions in them, numbered within the tile.
            keys: The positives of the tile's queries.
        """
        pairs = tile.pairs(found)
        pairs = pairs.select(self._apart(pairs.query, pairs.item))
        places, unsure = keys.locate(pairs)
        undecided = pairs.select(unsure)
        if len(unsure) > UNDECIDED_SHARE * tile.values[band].size:
            undecided = self._in_float64(tile.part(band), undecided)
            places[unsure], still = keys.locate(undecided)
            unsure, undecided = unsure[still], undecided.select(still)
        places[unsure] = self._decide(undecided, keys)
        precedes_any = places > self.positives.starts[pairs.query]
        with self._lock:
            self.positives.note(tile.span, places[precedes_any] - 1)

    def _decide(self, pairs: Pairs, keys: Keys) -> Rows:
        first = self._panel.rows.start
        exact = self._scores.exact(pairs.query + first, pairs.item)
        # A large tolerance may reach back to the places of other queries.
        starts = self.positives.starts[pairs.query]
        bounds = np.maximum(keys.lower_bounds(pairs), starts)
        return self.positives.advance(bounds, pairs, exact)

    def _in_float64(self, band: Tile, pairs: Pairs) -> Pairs:
        rows = band.rows
        left = self._scores.left(rows + self._panel.rows.start, np.float64)
        right = self._scores.right(band.items, np.float64)
        query = np.searchsorted(rows, pairs.query)
        return replace(
            pairs,
            score=(left @ right.T)[query, pairs.item - band.items.start],
            tolerance=self._scores.tolerance(left)[query],
        )
