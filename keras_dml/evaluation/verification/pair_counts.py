"""Pair counts: similarities of all pairs of images, on a fine grid."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

STEP = 2.0**-20
"""Distance of thresholds: about what float32 embeddings tell apart."""

CELLS = round(2 / STEP) + 1
"""Cell i holds scores from −1 + i·STEP on, below those of the next cell."""

_SIDE = 1024

Block = tuple[slice, slice, Rows, NDArray[np.bool_]]


@dataclass(frozen=True)
class PairCounts:
    """How many pairs score at least as much as each threshold.

    Thresholds are those between and around the cells, ascending; counts at
    them are of all pairs, exactly.

    Attributes:
        accepted_positive: Pairs of one class from each threshold on,
            (CELLS + 1,).
        accepted_negative: Pairs of two classes from each threshold on,
            (CELLS + 1,).
    """

    accepted_positive: Rows
    accepted_negative: Rows

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
    # By position: a cell's pairs are accepted from the threshold below it
    # on, and by the last threshold none are.
    positive = np.zeros(CELLS + 1, np.int64)
    total = np.zeros(CELLS + 1, np.int64)
    for rows, columns, cells, later in pair_blocks(
        x, slice(0, len(x)), _SIDE, _SIDE**2
    ):
        same = labels[rows, None] == labels[columns]
        positive += np.bincount(cells[same & later], minlength=CELLS + 1)
        total += np.bincount(cells[later], minlength=CELLS + 1)
    return PairCounts(
        np.cumsum(positive[::-1])[::-1],
        np.cumsum((total - positive)[::-1])[::-1],
    )


def pair_blocks(
    x: FloatArray, some: slice, height: int, size: int
) -> Iterator[Block]:
    """Pairs of some rows with all rows that follow them, block by block.

    Args:
        x: Unit embeddings, (N, D).
        some: The first rows of the pairs.
        height: Most rows of a block.
        size: Most pairs of a block.

    Yields:
        Rows; columns; the cells of their scores, (rows, columns); and which
        of these are pairs: those where the column is later than the row.
    """
    for part in blocks(some.stop - some.start, height):
        rows = slice(some.start + part.start, some.start + part.stop)
        left = x[rows].astype(np.float64, copy=False)
        for rest in blocks(len(x) - rows.start, size // len(left)):
            columns = slice(rows.start + rest.start, rows.start + rest.stop)
            right = x[columns].astype(np.float64, copy=False)
            later = (
                np.arange(columns.start, columns.stop)
                > np.arange(rows.start, rows.stop)[:, None]
            )
            yield rows, columns, _cells(left @ right.T), later


def threshold_at(position: Any) -> Any:
    """The threshold, or thresholds, at a position of `accepted_positive`."""
    return -1.0 + position * STEP


def _cells(scores: FloatArray) -> Rows:
    """The cell of each score; the scores are overwritten."""
    scores += 1.0
    scores *= 1 / STEP
    # Towards zero, which is down: rounding may only just leave [-1, 1].
    cells = scores.astype(np.int64)
    return np.clip(cells, 0, CELLS - 1, out=cells)
