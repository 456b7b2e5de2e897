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
from keras_dml.utils.vectors import blocks, row_norms, squares

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


def count_pairs(
    factors: Factors, labels: Rows, progress: bool | None = False
) -> PairCounts:
    """Counts all N(N − 1)/2 pairs, in memory that is independent of N."""
    # By position: a cell's pairs are accepted from the threshold below it
    # on, and by the last threshold none are.
    positive = np.zeros(CELLS + 1, np.int64)
    total = np.zeros(CELLS + 1, np.int64)
    parts = list(blocks(len(labels), _SIDE))
    for part in tracked(parts, len(parts), "Comparing pairs", progress):
        for rows, columns, cells, later in pair_blocks(
            factors, part, _SIDE, _SIDE**2
        ):
            same = labels[rows, None] == labels[columns]
            positive += np.bincount(cells[same & later], minlength=CELLS + 1)
            total += np.bincount(cells[later], minlength=CELLS + 1)
    return PairCounts(
        np.cumsum(positive[::-1])[::-1],
        np.cumsum((total - positive)[::-1])[::-1],
    )


@dataclass(frozen=True)
class AllPairs:
    """All pairs of images with classes.

    Args:
        factors: The factors of all images, (N, d) both.
        classes: Classes, numbered from 0, (N,).
        progress: Whether to show progress; None shows it in a terminal.
    """

    factors: Factors
    classes: Rows
    progress: bool | None = False

    @cached_property
    def counts(self) -> PairCounts:
        """How many of them reach each threshold."""
        return count_pairs(self.factors, self.classes, self.progress)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.classes.max(initial=-1)) + 1

    def drawn(
        self,
        num_resamples: int,
        seed: int,
        positions: Rows,
        progress: bool | None = False,
    ) -> "Drawn":
        """The pairs of samples of the classes; see `ClassBootstrap.drawn`."""
        samples = ClassBootstrap(
            self.factors, self.classes, num_resamples, seed
        )
        return samples.drawn(positions, progress)


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
        rows = slice(some.start + part.start, some.start + part.stop)
        left = factors.left[rows].astype(np.float64, copy=False)
        count = len(factors.right) - rows.start
        for rest in blocks(count, size // len(left)):
            columns = slice(rows.start + rest.start, rows.start + rest.stop)
            right = factors.right[columns].astype(np.float64, copy=False)
            later = (
                np.arange(columns.start, columns.stop)
                > np.arange(rows.start, rows.stop)[:, None]
            )
            yield rows, columns, cells_of(left, right), later


def cells_of(left: FloatArray, right: FloatArray) -> Rows:
    """Cells of the scores of factors of two blocks, (n, m)."""
    return _cells(left @ right.T)


def _cells(scores: FloatArray) -> Rows:
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
        cells[part] = _cells(np.einsum("nd,nd->n", left, right))
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


class ClassBootstrap:
    """Draws classes, or groups of classes, as for `calibrate`, and counts
    pairs.

    Pairs between two copies of the same class are excluded: they are
    same-class pairs, and some pair an image with itself.

    Args:
        factors: The factors of all images, (N, d) both.
        classes: Classes, numbered from 0, (N,).
        num_resamples: Number of samples, B.
        seed: Seed of the draws.
    """

    def __init__(
        self, factors: Factors, classes: Rows, num_resamples: int, seed: int
    ) -> None:
        rng = np.random.default_rng(seed)
        count = int(classes.max()) + 1
        self._units = min(count, MOST_UNITS)
        unit = rng.permutation(count)[classes] % self._units
        order = np.argsort(unit, kind="stable")
        self._factors = factors.select(order)
        self._classes = classes[order]
        self._unit = unit[order]
        self._starts = np.searchsorted(self._unit, np.arange(self._units + 1))
        self._times = times_drawn(rng, num_resamples, self._units)

    def drawn(self, positions: Rows, progress: bool | None = False) -> Drawn:
        """The samples' pairs.

        Args:
            positions: Positions of thresholds, as in `PairCounts`, ascending,
                (T,).
            progress: Whether to show progress; None shows it in a terminal.
        """
        bins = np.searchsorted(positions, np.arange(CELLS), side="right")
        count, width = len(self._times), len(positions) + 1
        hits, false = np.zeros((2, count, width))
        lowest, highest = np.full(count, CELLS), np.full(count, -1)
        about = self._units, "Drawing classes for the interval", progress
        for unit in tracked(range(self._units), *about):
            pairs = self._counts(unit, bins, width)
            times = self._times[:, unit, None]
            hits += times * pairs.positive
            false += times * pairs.negative[unit]
            # As often as the product says of how often both are drawn.
            later = slice(unit + 1, None)
            false += times * (self._times[:, later] @ pairs.negative[later])
            there = np.flatnonzero(times[:, 0])
            lowest[there] = np.minimum(lowest[there], pairs.lowest)
            both = np.where(self._times[there] > 0, pairs.highest, -1)
            highest[there] = np.maximum(highest[there], both.max(axis=1))
        return Drawn(from_each_on(hits), from_each_on(false), lowest, highest)

    def _counts(self, unit: int, bins: Rows, width: int) -> "_UnitPairs":
        """Pairs of a unit's images with each other and with later ones."""
        positive = np.zeros(width)
        negative = np.zeros((self._units, width))
        lowest, highest = CELLS, np.full(self._units, -1)
        own = slice(*self._starts[unit : unit + 2].tolist())
        for rows, columns, cells, later in pair_blocks(
            self._factors, own, _UNIT_ROWS, _UNIT_PAIRS
        ):
            found = bins[cells]
            same = self._classes[rows, None] == self._classes[columns]
            alike, apart = later & same, later & ~same
            positive += np.bincount(found[alike], minlength=width)
            place = self._unit[columns] * width + found
            tally = np.bincount(place[apart], minlength=negative.size)
            negative += tally.reshape(negative.shape)
            lowest = min(lowest, int(cells[alike].min(initial=CELLS)))
            most = np.where(apart, cells, -1).max(axis=0)
            np.maximum.at(highest, self._unit[columns], most)
        return _UnitPairs(positive, negative, lowest, highest)


@dataclass(frozen=True)
class _UnitPairs:
    """Pairs of a unit: same-class pairs by bin, (width,), different-class pairs
    by the unit of the other image and by bin, (units, width), and their lowest
    cell and highest cells, (units,)."""

    positive: FloatArray
    negative: FloatArray
    lowest: int
    highest: Rows


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
