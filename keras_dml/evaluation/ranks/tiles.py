"""Tiles: blocks of scores, and the images in them that precede positives."""

import threading
from dataclasses import dataclass, replace

import numpy as np

from keras_dml.evaluation.ranks.positives import (
    Keys,
    Limits,
    Pairs,
    RankedPositives,
    Ranks,
)
from keras_dml.evaluation.ranks.relevance import Relevance
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, within

BAND_SCORES = 2**17
"""Number of scores processed together, small enough for the cache."""

UNDECIDED_SHARE = 1 / 16
"""Share of undecided pairs above which a float64 product is faster."""


@dataclass(frozen=True)
class Tile:
    """A block of scores, minus `Scores.offset`."""

    values: FloatArray  # (queries, items); (items, queries) if mirrored.
    tolerance: FloatArray  # Bound on the error of a query's scores, (queries,).
    rows: Rows  # The queries, numbered within their panel, ascending.
    items: slice  # Images of the gallery.
    mirrored: bool = False

    @property
    def span(self) -> slice:
        """The consecutive queries from the first to the last of `rows`."""
        return slice(int(self.rows[0]), int(self.rows[-1]) + 1)

    def bands(self) -> list[slice]:
        """Consecutive rows of `values` that are processed together."""
        height = max(1, BAND_SCORES // self.values.shape[1])
        return blocks(len(self.values), height)

    def part(self, band: slice) -> "Tile":
        """The tile of some consecutive rows of `values`."""
        values = self.values[band]
        if self.mirrored:
            items = within(self.items, band)
            return replace(self, values=values, items=items)
        tolerance, rows = self.tolerance[band], self.rows[band]
        return replace(self, values=values, tolerance=tolerance, rows=rows)

    def lowest(self, cutoffs: FloatArray) -> FloatArray:
        """The lowest scores, (queries,), that may reach the cutoffs."""
        # Scores are compared in their own precision.
        dtype = self.values.dtype
        bounds = (cutoffs - self.tolerance).astype(dtype)
        lowest: FloatArray = np.nextafter(bounds, np.array(-np.inf, dtype))
        return lowest

    def reaching(self, lowest: FloatArray, band: slice) -> Rows:
        """Positions in the flat `values` of a band's scores that reach the
        bound of their query."""
        bounds = lowest if self.mirrored else lowest[band, None]
        positions = np.flatnonzero(self.values[band] >= bounds)
        return positions + band.start * self.values.shape[1]

    def pairs(self, hits: Rows) -> Pairs:
        """The pairs at some positions of the flat `values`."""
        first = hits // self.values.shape[1]
        second = hits - first * self.values.shape[1]
        query, item = (second, first) if self.mirrored else (first, second)
        return Pairs(
            self.rows[query],
            item + self.items.start,
            self.values.reshape(-1)[hits],
            self.tolerance[query],
        )


@dataclass(frozen=True)
class Panel:
    """Queries whose ranks are found together."""

    rows: slice  # Their positions among all queries.
    lhs: FloatArray  # Their left factor, (n, D + 2).
    tolerance: FloatArray  # Bound on the error of each query's scores, (n,).

    @classmethod
    def of(cls, scores: Scores, rows: slice) -> "Panel":
        size = rows.stop - rows.start
        lhs = np.empty((size, scores.factor_size), np.float32)
        tolerance = np.empty(size)
        for part in scores.queries.blocks(rows):
            lhs[part] = scores.lhs(within(rows, part))
            tolerance[part] = scores.tolerance(lhs[part])
        return cls(rows, lhs, tolerance)

    def __len__(self) -> int:
        return len(self.lhs)

    def tile(
        self, values: FloatArray, rows: Rows, items: slice, mirrored: bool
    ) -> Tile:
        """The tile of some of the queries; see `Tile`."""
        return Tile(values, self.tolerance[rows], rows, items, mirrored)


class Counter:
    """Ranks of the relevant images of a panel of queries, exact up to limits.

    Only images of other classes are counted. The order of the relevant images
    of a query is known from their exact scores, and images of its class that
    are not relevant (itself, excluded images) do not take a rank. Queries are
    numbered from 0 within the panel.
    """

    def __init__(
        self, scores: Scores, relevance: Relevance, panel: Panel, limits: Limits
    ) -> None:
        self._first = panel.rows.start
        self._scores = scores
        self._ids = relevance.ids[panel.rows]
        self._lock = threading.Lock()
        positives, _, self._apart = relevance.of(panel.rows)
        queries = positives.owners + self._first
        exact = scores.exact(queries, positives.items)
        self._positives = RankedPositives(positives, exact, limits)
        self._cutoffs = np.empty(len(panel))
        self._update(slice(0, len(panel)))

    def ranks(self) -> Ranks:
        """The ranks, after all of the gallery has been counted."""
        positives = self._positives
        counts = np.diff(positives.starts)
        queries = np.flatnonzero(counts)
        ranks, gains = positives.ranks(), positives.gains()
        ids = self._ids[queries]
        return Ranks(queries + self._first, counts[queries], ranks, ids, gains)

    def active(self, queries: slice) -> Rows:
        """The queries among some that require more counting."""
        needed = self._cutoffs[queries] < np.inf
        return np.flatnonzero(needed) + queries.start

    def count(self, *tiles: Tile) -> None:
        """Counts a block for the queries of one side or both, in any thread."""
        keys, lowest = [], []
        for tile in tiles:
            keys.append(Keys(self._positives, tile.span, self._scores.offset))
            lowest.append(tile.lowest(self._cutoffs[tile.rows]))
        # Bands with few candidates are examined together at the end.
        remaining: list[list[Rows]] = [[np.empty(0, np.int64)] for _ in tiles]
        for band in tiles[0].bands():
            # Both sides are examined while the band is in the cache.
            for side, tile in enumerate(tiles):
                hits = tile.reaching(lowest[side], band)
                if len(hits) > UNDECIDED_SHARE * tile.values[band].size:
                    self._note(tile, band, hits, keys[side])
                else:
                    remaining[side].append(hits)
        for side, tile in enumerate(tiles):
            hits = np.concatenate(remaining[side])
            if len(hits):
                whole = slice(0, len(tile.values))
                self._note(tile, whole, hits, keys[side])
            with self._lock:
                self._update(tile.span)

    def _update(self, queries: slice) -> None:
        cutoffs = self._positives.cutoffs(queries)
        self._cutoffs[queries] = cutoffs - self._scores.offset

    def _note(self, tile: Tile, band: slice, hits: Rows, keys: Keys) -> None:
        """Records images of a band at the best positives they precede."""
        pairs = tile.pairs(hits)
        pairs = pairs.select(self._apart(pairs.query, pairs.item))
        slots, unsure = keys.locate(pairs)
        undecided = pairs.select(unsure)
        if len(unsure) > UNDECIDED_SHARE * tile.values[band].size:
            undecided = self._in_float64(tile.part(band), undecided)
            slots[unsure], still = keys.locate(undecided)
            unsure, undecided = unsure[still], undecided.select(still)
        exact = self._scores.exact(
            undecided.query + self._first, undecided.item
        )
        # A large tolerance may reach back to the slots of other queries.
        starts = self._positives.starts[undecided.query]
        bounds = np.maximum(keys.lower_bounds(undecided), starts)
        slots[unsure] = self._positives.advance(bounds, undecided, exact)
        precedes_any = slots > self._positives.starts[pairs.query]
        with self._lock:
            self._positives.note(tile.span, slots[precedes_any] - 1)

    def _in_float64(self, band: Tile, pairs: Pairs) -> Pairs:
        rows = band.rows
        lhs = self._scores.lhs(rows + self._first, np.float64)
        rhs = self._scores.rhs(band.items, np.float64)
        query = np.searchsorted(rows, pairs.query)
        return replace(
            pairs,
            score=(lhs @ rhs.T)[query, pairs.item - band.items.start],
            tolerance=self._scores.tolerance(lhs)[query],
        )
