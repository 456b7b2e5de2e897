"""Pair counts: similarities of pairs of images, of all and of samples."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.resampling import times_drawn
from keras_dml.utils.lazy_rows import EmbeddingRows, changed, selected
from keras_dml.utils.progress import tracked
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, row_norms, squares, within

STEP = 2.0**-20
"""Distance of thresholds: about the resolution of float32 embeddings."""

CELLS = round(2 / STEP) + 1
"""Cell i holds scores from −1 + i·STEP up to those of the next cell."""

_SIDE = 1024

MOST_UNITS = 512
"""Number of classes above which groups are drawn: time grows quadratically."""

_QUANTILES = 64
_UNIT_ROWS, _UNIT_PAIRS = 256, 2**21
_PAIRS = 2**14
"""Pairs of a list that are compared at a time."""

Block = tuple[slice, slice, Rows, NDArray[np.bool_]]


@dataclass(frozen=True)
class Factors:
    """Matrices whose product has the scores of pairs, from −1 to 1.

    Attributes:
        left: Factor of the first images, (N, d).
        right: Factor of the second images, (M, d).
        distance: "cosine", "euclidean" or "dot".
        unit: The dot product that a score of 1 stands for; for Euclidean
            distances, its square root.
    """

    left: EmbeddingRows
    right: EmbeddingRows
    distance: str = "cosine"
    unit: float = 1.0

    @classmethod
    def of(cls, x: EmbeddingRows, y: EmbeddingRows, distance: str) -> "Factors":
        """The factors of embeddings, (N, D) and (M, D); unit ones for
        cosine."""
        if distance == "cosine":
            return cls(x, y)
        tiny = np.finfo(np.float64).tiny
        largest = [max(float(row_norms(z).max()), tiny) for z in (x, y)]
        if distance == "dot":
            changes = [partial(_divided, by=z) for z in largest]
            unit = largest[0] * largest[1]
        else:
            # 1 − c|x − y|² = 2c x·y − c|x|² + (1 − c|y|²), with
            # c|x − y|² ≤ 2.
            unit = sum(largest) / 2**0.5
            changes = [partial(f, unit=unit) for f in (_left, _right)]
        left, right = map(changed, (x, y), changes)
        return cls(left, right, distance, unit)

    def select(self, rows: Rows) -> "Factors":
        """The factors of some images, the same on both sides."""
        left = selected(self.left, rows)
        is_one = self.right is self.left
        return replace(
            self,
            left=left,
            right=left if is_one else selected(self.right, rows),
        )

    def outer(self, scores: Any) -> Any:
        """The meaning of scores from −1 to 1: a cosine, x·y, or −|x − y|."""
        if self.distance != "euclidean":
            return scores * self.unit
        squared = 1.0 - scores
        return -np.sign(squared) * self.unit * np.sqrt(np.abs(squared))


def _divided(x: FloatArray, by: float) -> FloatArray:
    return x.astype(np.float64) / by


def _left(x: FloatArray, unit: float) -> FloatArray:
    x = _divided(x, unit)
    return np.hstack([2 * x, -squares(x)[:, None], np.ones((len(x), 1))])


def _right(x: FloatArray, unit: float) -> FloatArray:
    x = _divided(x, unit)
    return np.hstack([x, np.ones((len(x), 1)), 1 - squares(x)[:, None]])


@dataclass(frozen=True)
class PairCounts:
    """How many pairs score at least as much as each threshold.

    Thresholds are those between and around the cells, ascending. The counts
    are exact and cover all pairs.

    Attributes:
        accepted_positive: Number of same-class pairs, (CELLS + 1,).
        accepted_negative: Number of different-class pairs, (CELLS + 1,).
    """

    accepted_positive: Rows
    accepted_negative: Rows

    @property
    def positives(self) -> int:
        """Number of same-class pairs."""
        return int(self.accepted_positive[0])

    @property
    def negatives(self) -> int:
        """Number of different-class pairs."""
        return int(self.accepted_negative[0])

    @classmethod
    def of(cls, positive: Rows, negative: Rows) -> "PairCounts":
        """From the numbers of pairs in each cell, (CELLS + 1,), the last 0."""
        # A cell's pairs are accepted from the threshold below it on.
        return cls(*(np.cumsum(x[::-1])[::-1] for x in (positive, negative)))


def pair_blocks(
    factors: Factors, some: slice, height: int, size: int
) -> Iterator[Block]:
    """Pairs of some rows with all rows that follow them, block by block.

    Blocks have at most `height` rows and `size` pairs.

    Yields:
        Rows; columns; the cells of their scores, (rows, columns); and which of
        these are pairs: those whose column is later than the row.
    """
    for part in blocks(some.stop - some.start, height):
        rows = within(some, part)
        left = factors.left[rows].astype(np.float64, copy=False)
        count = len(factors.right) - rows.start
        for rest in blocks(count, size // len(left)):
            columns = within(rows, rest)
            right = factors.right[columns].astype(np.float64, copy=False)
            later = (
                np.arange(columns.start, columns.stop)
                > np.arange(rows.start, rows.stop)[:, None]
            )
            yield rows, columns, cells_of(left @ right.T), later


def cells_of(scores: FloatArray) -> Rows:
    """Cells of scores, which are overwritten."""
    scores += 1.0
    scores *= 1 / STEP
    # Towards zero, which is down: rounding may only just leave [-1, 1].
    cells = scores.astype(np.int64)
    return np.clip(cells, 0, CELLS - 1, cells)


def scored_cells(factors: Factors, first: Rows, second: Rows) -> Rows:
    """Cells of the scores of some pairs of rows, (M,)."""
    cells = np.empty(len(first), np.int64)
    for part in blocks(len(first), _PAIRS):
        left = np.asarray(factors.left[first[part]], np.float64)
        right = np.asarray(factors.right[second[part]], np.float64)
        cells[part] = cells_of(np.einsum("nd,nd->n", left, right))
    return cells


def threshold_at(position: Any) -> Any:
    """The score or scores at a position of `accepted_positive`."""
    return -1.0 + position * STEP


@dataclass(frozen=True)
class Drawn:
    """The pairs of bootstrap samples.

    Attributes:
        hits: Same-class pairs that reach each of some thresholds, (B, T).
        false: Different-class pairs that reach them, (B, T).
        lowest: Lowest cell of the same-class pairs, (B,).
        highest: Highest cell of the different-class pairs, (B,).
    """

    hits: FloatArray
    false: FloatArray
    lowest: Rows
    highest: Rows


@dataclass(frozen=True)
class AllPairs:
    """All N(N − 1)/2 pairs of images with classes.

    Attributes:
        factors: The factors of all images, (N, d) both.
        classes: Classes, numbered from 0, (N,).
        progress: Whether to show it; None shows it in a terminal.
    """

    factors: Factors
    classes: Rows
    progress: bool | None = False

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.classes.max(initial=-1)) + 1

    @cached_property
    def counts(self) -> PairCounts:
        """How many reach each threshold, in memory that is independent of N."""
        positive, total = np.zeros((2, CELLS + 1), np.int64)
        parts = blocks(len(self.classes), _SIDE)
        about = len(parts), "Comparing pairs", self.progress
        for part in tracked(parts, *about):
            for rows, columns, cells, later in pair_blocks(
                self.factors, part, _SIDE, _SIDE**2
            ):
                same = self.classes[rows, None] == self.classes[columns]
                of_one = cells[same & later]
                positive += np.bincount(of_one, minlength=CELLS + 1)
                total += np.bincount(cells[later], minlength=CELLS + 1)
        return PairCounts.of(positive, total - positive)

    def drawn(self, num_resamples: int, seed: int, positions: Rows) -> Drawn:
        """Pairs of samples of the classes, or of groups, as for `calibrate`.

        Pairs between two copies of the same class are excluded: they are
        same-class pairs, and some pair an image with itself. Positions, (T,),
        are those of some thresholds in `PairCounts`, ascending.
        """
        rng = np.random.default_rng(seed)
        count = min(self.num_classes, MOST_UNITS)
        units = rng.permutation(self.num_classes)[self.classes] % count
        order = np.argsort(units, kind="stable")
        factors = self.factors.select(order)
        by_unit = factors, self.classes[order], units[order]
        width = len(positions) + 1
        bins = np.searchsorted(positions, np.arange(CELLS), side="right")
        drawn = times_drawn(rng, num_resamples, count)
        hits, false = np.zeros((2, num_resamples, width))
        lowest = np.full(num_resamples, CELLS)
        highest = np.full(num_resamples, -1)
        about = count, "Drawing classes for the interval", self.progress
        for unit in tracked(range(count), *about):
            positive, negative, low, high = _unit_pairs(
                *by_unit, unit, bins, width
            )
            times = drawn[:, unit, None]
            hits += times * positive
            false += times * negative[unit]
            # As often as the product says of how often both are drawn.
            later = slice(unit + 1, None)
            false += times * (drawn[:, later] @ negative[later])
            there = np.flatnonzero(times[:, 0])
            lowest[there] = np.minimum(lowest[there], low)
            both = np.where(drawn[there] > 0, high, -1)
            highest[there] = np.maximum(highest[there], both.max(axis=1))
        return Drawn(from_each_on(hits), from_each_on(false), lowest, highest)


def _unit_pairs(
    factors: Factors,
    classes: Rows,
    units: Rows,
    unit: int,
    bins: Rows,
    width: int,
) -> tuple[FloatArray, FloatArray, int, Rows]:
    """Pairs of a unit's images with each other and with later ones.

    Args:
        factors, classes, units: Of all images, ordered by their unit, (N, …).
        unit: The unit.
        bins: Bin of every cell, (CELLS,).
        width: Number of bins, W.

    Returns:
        Same-class pairs by bin, (W,); different-class pairs by the unit of the
        other image and by bin, (U, W); and their lowest cell, and highest
        ones, (U,).
    """
    count = int(units[-1]) + 1
    positive, negative = np.zeros(width), np.zeros((count, width))
    lowest, highest = CELLS, np.full(count, -1)
    own = slice(*np.searchsorted(units, [unit, unit + 1]).tolist())
    for rows, columns, cells, later in pair_blocks(
        factors, own, _UNIT_ROWS, _UNIT_PAIRS
    ):
        found = bins[cells]
        same = classes[rows, None] == classes[columns]
        alike, apart = later & same, later & ~same
        positive += np.bincount(found[alike], minlength=width)
        place = units[columns] * width + found
        tally = np.bincount(place[apart], minlength=negative.size)
        negative += tally.reshape(negative.shape)
        lowest = min(lowest, int(cells[alike].min(initial=CELLS)))
        most = np.where(apart, cells, -1).max(axis=0)
        np.maximum.at(highest, units[columns], most)
    return positive, negative, lowest, highest


def quantile_positions(counts: PairCounts, number: int = _QUANTILES) -> Rows:
    """Thresholds between which rates change little, ascending.

    They are quantiles of the same-class pairs, and powers of shares of both
    kinds, because small error rates matter as much as large ones. Where no
    score lies above a threshold for a while, the end of that gap is one too: in
    a gap all thresholds are equally good, and its middle is chosen.
    """
    positives, negatives = counts.positives, counts.negatives
    shares = np.linspace(0, 1, number)
    missed = 1 - np.geomspace(1 / positives, 1, number)
    powers = np.geomspace(1 / negatives, 1, number)
    found = [
        _reaching(counts.accepted_positive, shares * positives),
        _reaching(counts.accepted_positive, missed * positives),
        _reaching(counts.accepted_negative, powers * negatives),
        _reaching(counts.accepted_negative, np.zeros(1)),
        np.array([0, CELLS]),
    ]
    positions = np.unique(np.concatenate(found))
    accepted = counts.accepted_positive + counts.accepted_negative
    ends = _reaching(accepted, accepted[positions] - 1) - 1
    return np.unique(np.concatenate([positions, ends[positions < CELLS]]))


def _reaching(accepted: Rows, most: FloatArray) -> Rows:
    """The first positions that accept no more than each of some numbers."""
    return len(accepted) - np.searchsorted(accepted[::-1], most, "right")


def from_each_on(tally: FloatArray) -> FloatArray:
    """Sums over the bins above each edge, (B, T)."""
    sums: FloatArray = np.cumsum(tally[:, ::-1], axis=1)[:, ::-1]
    return sums[:, 1:]
