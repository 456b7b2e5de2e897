"""Class bootstrap: what thresholds accept in samples of the classes."""

import numpy as np

from keras_dml.evaluation.verification.pair_counts import (
    CELLS,
    PairCounts,
    pair_blocks,
)
from keras_dml.utils.types import FloatArray, Rows

MOST_UNITS = 512
"""With more classes, groups of them are drawn: time grows as the square."""

_QUANTILES = 128
_ROWS, _PAIRS = 256, 2**21


class ClassBootstrap:
    """Draws classes with replacement and counts their pairs.

    A pair within a class, or within a group of classes, counts as often as
    the class is drawn, a pair between two as often as the product says.
    The pairs of two copies of one class are left out: they are of one
    class, and some of an image with itself.

    Args:
        x: Unit embeddings, (N, D).
        classes: Classes, numbered from 0, (N,).
        num_resamples: Number of samples, B.
        seed: Seed of the draws.
    """

    def __init__(
        self, x: FloatArray, classes: Rows, num_resamples: int, seed: int
    ) -> None:
        rng = np.random.default_rng(seed)
        count = int(classes.max()) + 1
        self._units = min(count, MOST_UNITS)
        unit = rng.permutation(count)[classes] % self._units
        order = np.argsort(unit, kind="stable")
        self._x = x[order].astype(np.float64)
        self._classes = classes[order]
        self._unit = unit[order]
        self._starts = np.searchsorted(self._unit, np.arange(self._units + 1))
        drawn = rng.integers(0, self._units, (num_resamples, self._units))
        offsets = self._units * np.arange(num_resamples)[:, None]
        size = num_resamples * self._units
        times = np.bincount((drawn + offsets).reshape(-1), minlength=size)
        self._times = times.reshape(num_resamples, self._units).astype(
            np.float64
        )

    def accepted(self, positions: Rows) -> tuple[FloatArray, FloatArray]:
        """Pairs that each sample accepts.

        Args:
            positions: Thresholds, positions as of `PairCounts`, (T,),
                ascending.

        Returns:
            Pairs of one class and of two, (B, T) each.
        """
        bins = np.searchsorted(positions, np.arange(CELLS), side="right")
        shape = len(self._times), len(positions) + 1
        hits, false = np.zeros(shape), np.zeros(shape)
        for unit in range(self._units):
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

        Returns:
            Those of one class, by bin, (width,); and those of two, by the
            unit of the other image and by bin, (units, width).
        """
        positive = np.zeros(width)
        negative = np.zeros((self._units, width))
        own = slice(*self._starts[unit : unit + 2].tolist())
        for rows, columns, cells, later in pair_blocks(
            self._x, own, _ROWS, _PAIRS
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

    Quantiles of the pairs of one class, and of those of two by powers, as
    small false positive rates matter as much as large ones.
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
    """The first position that accepts no more than each of some numbers."""
    return len(accepted) - np.searchsorted(accepted[::-1], most, "right")


def _from_each_on(tally: FloatArray) -> FloatArray:
    """Sums over the bins above each edge, (B, T)."""
    sums: FloatArray = np.cumsum(tally[:, ::-1], axis=1)[:, ::-1]
    return sums[:, 1:]
