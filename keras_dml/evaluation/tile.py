"""A block of scores and its error."""

from dataclasses import dataclass, replace

import numpy as np

from keras_dml.evaluation.vectors import blocks, within
from keras_dml.types import FloatArray, Rows

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
        queries: Queries, numbered within their panel.
        items: Images of the gallery.
        mirrored: Whether queries are the second axis.
    """

    values: FloatArray
    tolerance: FloatArray
    queries: slice
    items: slice
    mirrored: bool = False

    def bands(self) -> "list[Tile]":
        """The same, in bands of consecutive rows."""
        height = max(1, BAND // self.values.shape[1])
        return [self._band(rows) for rows in blocks(len(self.values), height)]

    def _band(self, rows: slice) -> "Tile":
        values = self.values[rows]
        if self.mirrored:
            return replace(self, values=values, items=within(self.items, rows))
        return replace(
            self,
            values=values,
            tolerance=self.tolerance[rows],
            queries=within(self.queries, rows),
        )

    def reaching(self, lowest: FloatArray) -> "Pairs":
        """Pairs whose score may be as high as their query's `lowest`.

        Args:
            lowest: A score for each query, (queries,).
        """
        # The scores are compared in their own precision.
        dtype = self.values.dtype
        lowest = (lowest - self.tolerance).astype(dtype)
        lowest = np.nextafter(lowest, np.array(-np.inf, dtype))
        if not self.mirrored:
            lowest = lowest[:, None]
        found = np.flatnonzero(self.values >= lowest)
        first = found // self.values.shape[1]
        second = found - first * self.values.shape[1]
        query, item = (second, first) if self.mirrored else (first, second)
        return Pairs(
            query + self.queries.start,
            item + self.items.start,
            self.values.reshape(-1)[found],
            self.tolerance[query],
        )
