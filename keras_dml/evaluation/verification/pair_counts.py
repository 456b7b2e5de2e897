"""Pair counts: similarities of pairs of images, of all and of samples."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.confidence import times_drawn
from keras_dml.utils.progress import tracked
from keras_dml.utils.stored import EmbeddingRows, changed, selected
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, row_norms, squares

STEP = 2.0**-20
"""Distance of thresholds: about the resolution of float32 embeddings."""

CELLS = round(2 / STEP) + 1
"""Cell i holds scores from −1 + i·STEP up to those of the next cell."""

_SIDE = 1024

MOST_UNITS = 512
"""Number of classes above which groups are drawn: time grows quadratically."""

_QUANTILES = 128
_UNIT_ROWS, _UNIT_PAIRS = 256, 2**21

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
    scores = left @ right.T
    scores += 1.0
    scores *= 1 / STEP
    # Towards zero, which is down: rounding may only just leave [-1, 1].
    cells = scores.astype(np.int64)
    return np.clip(cells, 0, CELLS - 1, cells)


def threshold_at(position: Any) -> Any:
    """The score or scores at a position of `accepted_positive`."""
    return -1.0 + position * STEP


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

    def accepted(
        self, positions: Rows, progress: bool | None = False
    ) -> tuple[FloatArray, FloatArray]:
        """Same-class and different-class pairs that samples accept, (B, T)
        each.

        Args:
            positions: Positions of thresholds, as in `PairCounts`, ascending,
                (T,).
            progress: Whether to show progress; None shows it in a terminal.
        """
        bins = np.searchsorted(positions, np.arange(CELLS), side="right")
        shape = len(self._times), len(positions) + 1
        hits, false = np.zeros(shape), np.zeros(shape)
        about = self._units, "Drawing classes for the interval", progress
        for unit in tracked(range(self._units), *about):
            positive, negative = self._counts(unit, bins, shape[1])
            times = self._times[:, unit, None]
            hits += times * positive
            false += times * negative[unit]
            # As often as the product says of how often both are drawn.
            later = slice(unit + 1, None)
            false += times * (self._times[:, later] @ negative[later])
        return _from_each_on(hits), _from_each_on(false)

    def _counts(
        self, unit: int, bins: Rows, width: int
    ) -> tuple[FloatArray, FloatArray]:
        """Pairs of a unit's images with each other and with later ones.

        Same-class pairs by bin, (width,), and different-class pairs by the
        unit of the other image and by bin, (units, width).
        """
        positive = np.zeros(width)
        negative = np.zeros((self._units, width))
        own = slice(*self._starts[unit : unit + 2].tolist())
        for rows, columns, cells, later in pair_blocks(
            self._factors, own, _UNIT_ROWS, _UNIT_PAIRS
        ):
            found = bins[cells]
            same = self._classes[rows, None] == self._classes[columns]
            positive += np.bincount(found[later & same], minlength=width)
            place = self._unit[columns] * width + found
            tally = np.bincount(place[later & ~same], minlength=negative.size)
            negative += tally.reshape(negative.shape)
        return positive, negative


def quantile_positions(counts: PairCounts) -> Rows:
    """Thresholds between which rates change little, ascending.

    They are quantiles of the same-class pairs, and powers of those of the
    different-class pairs, because small false positive rates matter as much as
    large ones.
    """
    shares = np.linspace(0, 1, _QUANTILES)
    powers = np.geomspace(1 / counts.negatives, 1, _QUANTILES)
    found = [
        _reaching(counts.accepted_positive, shares * counts.positives),
        _reaching(counts.accepted_negative, powers * counts.negatives),
        np.array([0, CELLS]),
    ]
    return np.unique(np.concatenate(found))


def _reaching(accepted: Rows, most: FloatArray) -> Rows:
    """The first positions that accept no more than each of some numbers."""
    return len(accepted) - np.searchsorted(accepted[::-1], most, "right")


def _from_each_on(tally: FloatArray) -> FloatArray:
    """Sums over the bins above each edge, (B, T)."""
    sums: FloatArray = np.cumsum(tally[:, ::-1], axis=1)[:, ::-1]
    return sums[:, 1:]
