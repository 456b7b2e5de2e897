"""Similarities of all pairs of images, counted on a fine grid."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

STEP = 2.0**-20
"""Distance of thresholds: about what float32 embeddings tell apart."""

CELLS = round(2 / STEP) + 1
"""Cell i holds scores from −1 + i·STEP on, below those of the next cell."""

_SIDE = 1024


@dataclass(frozen=True)
class PairCounts:
    """How many pairs score at least as much as each threshold.

    Thresholds are those between and around the cells, ascending; counts at
    them are of all pairs, exactly.

    Attributes:
        positive: Pairs of one class by cell, (CELLS,).
        negative: Pairs of two classes by cell, (CELLS,).
    """

    positive: Rows
    negative: Rows

    @cached_property
    def accepted_positive(self) -> Rows:
        """Pairs of one class from each threshold on, (CELLS + 1,)."""
        return _from_each_on(self.positive)

    @cached_property
    def accepted_negative(self) -> Rows:
        """Pairs of two classes from each threshold on, (CELLS + 1,)."""
        return _from_each_on(self.negative)

    @property
    def positives(self) -> int:
        """Number of pairs of one class."""
        return int(self.accepted_positive[0])

    @property
    def negatives(self) -> int:
        """Number of pairs of two classes."""
        return int(self.accepted_negative[0])


def count_pairs(x: FloatArray, labels: Rows) -> PairCounts:
    """Counts all N(N − 1)/2 pairs, in memory that does not depend on N.

    Args:
        x: Unit embeddings, (N, D).
        labels: Classes, (N,).
    """
    positive, total = np.zeros(CELLS, np.int64), np.zeros(CELLS, np.int64)
    for rows, columns, cells in upper_cells(x):
        same = labels[rows, None] == labels[columns]
        if rows == columns:
            upper = np.triu(np.ones(cells.shape, bool), 1)
            positive += np.bincount(cells[same & upper], minlength=CELLS)
            total += np.bincount(cells[upper], minlength=CELLS)
        else:
            positive += np.bincount(cells[same], minlength=CELLS)
            total += np.bincount(cells.reshape(-1), minlength=CELLS)
    return PairCounts(positive, total - positive)


def upper_cells(x: FloatArray) -> Iterator[tuple[slice, slice, Rows]]:
    """Cells of the scores in the blocks on and above the diagonal.

    Args:
        x: Unit embeddings, (N, D).

    Yields:
        Rows, columns, and the cells of their pairs, (rows, columns).
    """
    sides = blocks(len(x), _SIDE)
    for i, rows in enumerate(sides):
        left = x[rows].astype(np.float64)
        for columns in sides[i:]:
            yield rows, columns, cells_of(left @ x[columns].astype(float).T)


def cells_of(scores: FloatArray) -> Rows:
    """The cell of each score; the scores are overwritten."""
    scores += 1.0
    scores *= 1 / STEP
    # Towards zero, which is down: rounding may only just leave [-1, 1].
    cells = scores.astype(np.int64)
    return np.clip(cells, 0, CELLS - 1, out=cells)


def threshold_at(position: int) -> float:
    """The threshold at a position of `accepted_positive`."""
    return -1.0 + position * STEP


def _from_each_on(counts: Rows) -> Rows:
    return np.append(np.cumsum(counts[::-1])[::-1], 0)
