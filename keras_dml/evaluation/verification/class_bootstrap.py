"""Bootstrap over classes of what thresholds accept."""

from collections.abc import Iterator

import numpy as np

from keras_dml.evaluation.verification.pairs import CELLS, PairCounts, cells_of
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

MOST_UNITS = 512
"""With more classes, groups of them are drawn: time grows as the square."""

_EDGES = 128
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
        resamples: Number of samples, B.
        seed: Seed of the draws.
    """

    def __init__(
        self, x: FloatArray, classes: Rows, resamples: int, seed: int
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
        drawn = rng.integers(0, self._units, (resamples, self._units))
        offsets = self._units * np.arange(resamples)[:, None]
        size = resamples * self._units
        times = np.bincount((drawn + offsets).reshape(-1), minlength=size)
        self._times = times.reshape(resamples, self._units).astype(np.float64)

    def accepted(self, positions: Rows) -> tuple[FloatArray, FloatArray]:
        """Pairs that each sample accepts.

        Args:
            positions: Thresholds, positions as of `PairCounts`, (T,),
                ascending.

        Returns:
            Pairs of one class and of two, (B, T) each.
        """
        bins = np.searchsorted(positions, np.arange(CELLS), side="right")
        width = len(positions) + 1
        resamples = len(self._times)
        hits = np.zeros((resamples, width))
        false = np.zeros((resamples, width))
        for unit in range(self._units):
            own, own_false, other = self._counts(unit, bins, width)
            times = self._times[:, unit, None]
            hits += times * own
            false += times * own_false
            false += times * (self._times[:, unit + 1 :] @ other[unit + 1 :])
        return _from_each_on(hits), _from_each_on(false)

    def _counts(
        self, unit: int, bins: Rows, width: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Pairs of a unit by bin: its positives, negatives, and with others.

        Returns:
            (width,), (width,) and, by unit, (units, width).
        """
        own, own_false = np.zeros(width), np.zeros(width)
        other = np.zeros((self._units, width))
        for rows, columns in self._blocks(unit):
            scores = self._x[rows] @ self._x[columns].T
            found = bins[cells_of(scores)]
            if columns.start >= self._starts[unit + 1]:
                place = self._unit[columns] * width + found
                tally = np.bincount(place.reshape(-1), minlength=other.size)
                other += tally.reshape(other.shape)
                continue
            later = np.arange(columns.start, columns.stop) > np.arange(
                rows.start, rows.stop
            ).reshape(-1, 1)
            same = self._classes[rows, None] == self._classes[columns]
            own += np.bincount(found[later & same], minlength=width)
            own_false += np.bincount(found[later & ~same], minlength=width)
        return own, own_false, other

    def _blocks(self, unit: int) -> Iterator[tuple[slice, slice]]:
        """Blocks of pairs in a unit, then of those with later units."""
        start, stop = self._starts[unit : unit + 2].tolist()
        for part in blocks(stop - start, _ROWS):
            rows = slice(start + part.start, start + part.stop)
            width = _PAIRS // (rows.stop - rows.start)
            for first, last in ((start, stop), (stop, len(self._x))):
                for columns in blocks(last - first, width):
                    yield (
                        rows,
                        slice(first + columns.start, first + columns.stop),
                    )


def telling_positions(counts: PairCounts) -> Rows:
    """Thresholds between which rates change little, ascending.

    Quantiles of the pairs of one class, and of those of two by powers, as
    small false positive rates matter as much as large ones.
    """
    shares = np.linspace(0, 1, _EDGES)
    powers = np.geomspace(1 / counts.negatives, 1, _EDGES)
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
