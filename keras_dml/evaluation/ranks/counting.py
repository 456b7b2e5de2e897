"""Counter of the gallery images that precede each relevant image, by tiles."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.ranks.ranked_positives import (
    Keys,
    Limits,
    Pairs,
    RankedPositives,
)
from keras_dml.evaluation.ranks.relevance import Positives, Relevance
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, within

UNDECIDED_SHARE = 1 / 16
"""Number of undecided pairs above which a float64 product is faster."""

COUNTED_SHARE = 1 / 64
"""Number of preceding images above which two more full comparisons are
faster."""


BAND = 2**17
"""Number of scores processed together, small enough for the cache."""


@dataclass(frozen=True)
class Tile:
    """A block of scores, minus `Scores.offset`.

    Attributes:
        values: (queries, items), or (items, queries) if `mirrored`.
        tolerance: Bound on the error of each query's scores, (queries,).
        rows: The queries, numbered within their panel, ascending, (queries,).
        items: Images of the gallery.
        mirrored: Whether queries are the second axis.
    """

    values: FloatArray
    tolerance: FloatArray
    rows: Rows
    items: slice
    mirrored: bool = False

    @property
    def span(self) -> slice:
        """The consecutive queries from the first to the last of `rows`."""
        return slice(int(self.rows[0]), int(self.rows[-1]) + 1)

    def bands(self) -> "Iterator[Tile]":
        """The same, in bands of consecutive rows of `values`."""
        height = max(1, BAND // self.values.shape[1])
        for part in blocks(len(self.values), height):
            values = self.values[part]
            if self.mirrored:
                items = within(self.items, part)
                yield replace(self, values=values, items=items)
            else:
                tolerance, rows = self.tolerance[part], self.rows[part]
                yield replace(
                    self, values=values, tolerance=tolerance, rows=rows
                )

    def reaching(self, cutoffs: FloatArray) -> NDArray[np.bool_]:
        """Where a score may be as high as its query's cutoff, (queries,)."""
        # The scores are compared in their own precision.
        dtype = self.values.dtype
        low = (cutoffs - self.tolerance).astype(dtype)
        low = np.nextafter(low, np.array(-np.inf, dtype))
        return self.values >= self._along(low)

    def exceeding(self, highest: FloatArray) -> NDArray[np.bool_]:
        """Where a score is certainly higher than its query's `highest`."""
        dtype = self.values.dtype
        high = (highest + self.tolerance).astype(dtype)
        high = np.nextafter(high, np.array(np.inf, dtype))
        return self.values > self._along(high)

    def counts(self, where: NDArray[np.bool_]) -> Rows:
        """Number of positions for each query, (queries,)."""
        if not self.mirrored:
            return np.array([np.count_nonzero(row) for row in where])
        # Small numbers are added faster.
        dtype = np.uint8 if len(where) < 256 else np.int64
        counts = np.add.reduce(where.view(np.uint8), axis=0, dtype=dtype)
        return counts.astype(np.int64)

    def pairs(self, where: NDArray[np.bool_]) -> Pairs:
        """The pairs at some positions."""
        found = np.flatnonzero(where)
        first = found // self.values.shape[1]
        second = found - first * self.values.shape[1]
        query, item = (second, first) if self.mirrored else (first, second)
        return Pairs(
            self.rows[query],
            item + self.items.start,
            self.values.reshape(-1)[found],
            self.tolerance[query],
        )

    def find(self, lists: Positives) -> tuple[Rows, Rows]:
        """Positions of listed images of the panel, as first and second
        axis."""
        counts = lists.counts[self.rows]
        query = np.repeat(np.arange(len(self.rows)), counts)
        within_list = np.arange(len(query)) - np.repeat(
            np.cumsum(counts) - counts, counts
        )
        item = lists.items[lists.starts[self.rows][query] + within_list]
        there = (item >= self.items.start) & (item < self.items.stop)
        query, item = query[there], item[there] - self.items.start
        return (item, query) if self.mirrored else (query, item)

    def _along(self, values: FloatArray) -> FloatArray:
        """Values for each query, to be compared to the scores."""
        return values if self.mirrored else values[:, None]


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
        for part in blocks(size, 4096):
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
        values: FloatArray,
        rows: Rows,
        items: slice,
        mirrored: bool = False,
    ) -> None:
        """Counts the scores of a `Tile`; several threads may do so."""
        tolerance = self._panel.tolerance[rows]
        tile = Tile(values, tolerance, rows, items, mirrored)
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
        """Where to look more closely, and how many images certainly precede
        all.

        If only the best positive of a query matters, images that are certainly
        better need not be examined; if there are many, they are counted
        directly.
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
        """For each image that precedes any positive, its best position."""
        pairs = band.pairs(where)
        pairs = pairs.select(self._apart(pairs.query, pairs.item))
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
