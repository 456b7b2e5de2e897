"""Tile: a block of scores and the bound on their error."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.ranks.relevance import Positives
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, within

BAND = 2**17
"""Scores looked at together: few enough to stay in the cache."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of a query and a gallery image.

    Attributes:
        query: (n,), numbered within the panel.
        item: (n,), numbered within the gallery.
        score: Less `Scores.offset`, (n,).
        tolerance: Bound on the error of the score, (n,).
    """

    query: Rows
    item: Rows
    score: FloatArray
    tolerance: FloatArray

    def select(self, which: Rows) -> "Pairs":
        """Some of the pairs."""
        return Pairs(
            self.query[which],
            self.item[which],
            self.score[which],
            self.tolerance[which],
        )


@dataclass(frozen=True)
class Tile:
    """A block of scores, less `Scores.offset`.

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
        """Number of places for each query, (queries,)."""
        if not self.mirrored:
            return np.array([np.count_nonzero(row) for row in where])
        # Small numbers are added faster.
        dtype = np.uint8 if len(where) < 256 else np.int64
        counts = np.add.reduce(where.view(np.uint8), axis=0, dtype=dtype)
        return counts.astype(np.int64)

    def pairs(self, where: NDArray[np.bool_]) -> Pairs:
        """The pairs at some places."""
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
        """Where images of lists of the panel are, as first and second axis."""
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
