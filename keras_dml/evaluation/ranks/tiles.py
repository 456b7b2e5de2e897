"""Tiles: blocks of scores, compared with bounds by peaks, or band by band."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.ranks.ranked_positives import Pairs
from keras_dml.evaluation.ranks.relevance import Positives
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, within

COUNTED_SHARE = 1 / 64
"""Share of preceding images above which two more full comparisons are
faster."""

BAND = 2**17
"""Number of scores processed together, small enough for the cache."""

GROUP = 8
"""Number of scores that share a peak."""

FEW_PEAKS = 1 / 32
"""Share of peaks that reach their bound above which comparing all scores is
faster."""

SAMPLED = 64
"""One row in this number shows whether peaks are worth their time."""


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

    def bands(self) -> list[slice]:
        """Consecutive rows of `values` that are processed together."""
        height = max(1, BAND // self.values.shape[1])
        return blocks(len(self.values), height)

    def part(self, band: slice) -> "Tile":
        """The tile of some consecutive rows of `values`."""
        values = self.values[band]
        if self.mirrored:
            items = within(self.items, band)
            return replace(self, values=values, items=items)
        tolerance, rows = self.tolerance[band], self.rows[band]
        return replace(self, values=values, tolerance=tolerance, rows=rows)

    def compared(
        self,
        compare: Callable[..., NDArray[np.bool_]],
        band: slice,
        bounds: FloatArray,
    ) -> NDArray[np.bool_]:
        """A comparison of scores with the bound of their query, (n, m)."""
        along = bounds if self.mirrored else bounds[band, None]
        return compare(self.values[band], along)

    def lowest(self, cutoffs: FloatArray) -> FloatArray:
        """Scores from which one may be as high as its query's cutoff,
        (queries,)."""
        return self._rounded(cutoffs - self.tolerance, -np.inf)

    def highest(self, cutoffs: FloatArray) -> FloatArray:
        """Scores above which one is certainly higher than its query's cutoff,
        (queries,)."""
        return self._rounded(cutoffs + self.tolerance, np.inf)

    def pairs(self, found: Rows) -> Pairs:
        """The pairs at some positions of the flat `values`."""
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
        """Positions of listed images of the panel: queries, and images."""
        counts = lists.counts[self.rows]
        query = np.repeat(np.arange(len(self.rows)), counts)
        within_list = np.arange(len(query)) - np.repeat(
            np.cumsum(counts) - counts, counts
        )
        item = lists.items[lists.starts[self.rows][query] + within_list]
        there = (item >= self.items.start) & (item < self.items.stop)
        return query[there], item[there] - self.items.start

    def _rounded(self, bounds: FloatArray, towards: float) -> FloatArray:
        # Scores are compared in their own precision.
        dtype = self.values.dtype
        rounded: FloatArray = np.nextafter(
            bounds.astype(dtype), np.array(towards, dtype)
        )
        return rounded


@dataclass(frozen=True)
class Block:
    """A product, which one tile or, if it is symmetric, two have in common.

    Attributes:
        values: Scores, (n, m).
    """

    values: FloatArray

    @cached_property
    def peaks(self) -> FloatArray:
        """The highest of every `GROUP` consecutive scores of a column.

        (n / `GROUP`, m), rounded up: the last group may be smaller.
        """
        height, width = self.values.shape
        whole, rest = divmod(height, GROUP)
        peaks = np.empty((whole + (rest > 0), width), self.values.dtype)
        for groups in blocks(whole, max(1, BAND // (GROUP * width))):
            rows = self.values[groups.start * GROUP : groups.stop * GROUP]
            cut = rows.reshape(-1, GROUP, width)
            np.maximum.reduce(cut, axis=1, out=peaks[groups])
        if rest:
            np.maximum.reduce(self.values[-rest:], axis=0, out=peaks[-1])
        return peaks


class Comparison:
    """Scores of a tile compared with the cutoffs of their queries.

    If only the best positive of a query matters, images that are certainly
    better need not be examined; if there are many, they are counted directly.

    Args:
        tile: The scores.
        block: The product that they are from.
        cutoffs: Scores below which nothing matters, (queries,).
        only_best: Whether only the best positive matters, (queries,).
    """

    def __init__(
        self,
        tile: Tile,
        block: Block,
        cutoffs: FloatArray,
        only_best: NDArray[np.bool_],
    ) -> None:
        self._tile = tile
        self._block = block
        self._low = tile.lowest(cutoffs)
        self._high: FloatArray | None = None
        if only_best.any():
            self._high = tile.highest(np.where(only_best, cutoffs, np.inf))
        self._counts = np.zeros(len(tile.rows), np.int64)
        self._is_counted = np.zeros(len(tile.values), bool)

    def few(self) -> Rows | None:
        """Positions of the flat tile to be looked at closely, if few.

        If a peak is below the bounds of its whole group, so are the scores.

        Returns:
            None if many peaks reach a bound: `examine` is then faster.
        """
        # 1. A sample of scores shows whether their peaks can rule most out.
        rows = slice(None, None, SAMPLED)
        sample = self._tile.compared(np.greater_equal, rows, self._low)
        if np.count_nonzero(sample) > FEW_PEAKS / GROUP * sample.size:
            return None
        # 2. Peaks are compared with the lowest bound of their group.
        peaks = self._block.peaks
        groups = np.flatnonzero(peaks >= self._lowest_of_groups())
        if len(groups) > FEW_PEAKS * peaks.size:
            return None
        # 3. Scores of the groups that are left have bounds of their own.
        group, column = np.divmod(groups, peaks.shape[1])
        row = (GROUP * group[:, None] + np.arange(GROUP)).reshape(-1)
        column = np.repeat(column, GROUP)
        if len(self._is_counted) % GROUP:
            there = row < len(self._is_counted)
            row, column = row[there], column[there]
        at = row * peaks.shape[1] + column
        bounds = self._low[column if self._tile.mirrored else row]
        return at[self._tile.values.reshape(-1)[at] >= bounds]

    def examine(self, band: slice) -> Rows:
        """Positions of a band, in the flat tile, to be looked at closely.

        Those that are counted instead are found in `counts`.
        """
        where = self._tile.compared(np.greater_equal, band, self._low)
        many = COUNTED_SHARE * where.size
        if self._high is not None and np.count_nonzero(where) > many:
            above = self._tile.compared(np.greater, band, self._high)
            where ^= above
            self._count(band, above)
        return np.flatnonzero(where) + band.start * where.shape[1]

    def counts(self, ignored: Positives) -> Rows:
        """How many images precede all positives, of those not to be examined.

        Args:
            ignored: Images that take no rank.

        Returns:
            One for each query of the tile, (queries,).
        """
        if self._high is None or not self._is_counted.any():
            return self._counts
        # Relevant images are no better than the best; others take no rank.
        tile = self._tile
        query, item = tile.find(ignored)
        at = (item, query) if tile.mirrored else (query, item)
        wrong = self._is_counted[at[0]]
        wrong &= tile.values[at] > self._high[query]
        return self._counts - np.bincount(
            query[wrong], minlength=len(self._counts)
        )

    def _lowest_of_groups(self) -> FloatArray:
        if self._tile.mirrored:
            return self._low
        starts = np.arange(0, len(self._low), GROUP)
        return np.minimum.reduceat(self._low, starts)[:, None]

    def _count(self, band: slice, above: NDArray[np.bool_]) -> None:
        self._is_counted[band] = True
        if not self._tile.mirrored:
            self._counts[band] = [np.count_nonzero(row) for row in above]
            return
        # Small numbers are added faster.
        dtype = np.uint8 if len(above) < 256 else np.int64
        self._counts += np.add.reduce(above.view(np.uint8), axis=0, dtype=dtype)
