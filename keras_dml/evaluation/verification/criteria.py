"""Criteria: what a threshold is best at, judged by the pairs it accepts."""

from dataclasses import dataclass

import numpy as np

from keras_dml.evaluation.verification.pair_counts import PairCounts
from keras_dml.utils.types import FloatArray, Rows

NAMES = ("eer", "f1", "fpr=RATE")


@dataclass(frozen=True)
class Criterion:
    """What a threshold has to be best at.

    Attributes:
        name: "eer", "f1" or "fpr".
        rate: The false positive rate that "fpr" allows.
    """

    name: str
    rate: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "Criterion":
        """A criterion from "eer", "f1" or "fpr=0.01".

        Raises:
            ValueError: If it is none of these.
        """
        name, equals, rate = text.partition("=")
        if name == "fpr" and equals:
            try:
                value = float(rate)
            except ValueError:
                value = 0.0
            if 0 < value < 1:
                return cls("fpr", value)
        elif text in ("eer", "f1"):
            return cls(text)
        raise ValueError(
            f"`criterion` of calibrate must be one of {NAMES}, the rate "
            f"between 0 and 1. Received: criterion={text!r}. Use for instance "
            "'eer' or 'fpr=0.01'."
        )

    def choose(self, counts: PairCounts) -> int:
        """The position of the best threshold among all of them."""
        hits, false = counts.accepted_positive, counts.accepted_negative
        if self.name == "fpr":
            allowed = false <= self.rate * counts.negatives
            return int(np.flatnonzero(allowed)[0])
        if self.name == "f1":
            score = _f1(hits, false)
            return _middle(score == score.max())
        # The shares, times both totals, to be exact.
        gap = np.abs(
            (counts.positives - hits) * counts.negatives
            - false * counts.positives
        )
        return _middle(gap == gap.min())

    def choose_between(
        self, thresholds: FloatArray, hits: FloatArray, false: FloatArray
    ) -> float:
        """The best threshold, from what some of them accept.

        Args:
            thresholds: Ascending, (T,).
            hits: Pairs of one class from each on, (T,); the first accepts
                all, the last none.
            false: Pairs of two classes from each on, (T,).

        Returns:
            A threshold, interpolated linearly; NaN without pairs.
        """
        if not (hits[0] and false[0]):
            return np.nan
        if self.name == "f1":
            score = _f1(hits, false)
            return float(thresholds[_middle(score == score.max())])
        if self.name == "fpr":
            return _crossing(thresholds, self.rate - false / false[0])
        return _crossing(thresholds, 1 - hits / hits[0] - false / false[0])


def _f1(hits: FloatArray | Rows, false: FloatArray | Rows) -> FloatArray:
    f1: FloatArray = 2 * hits / (hits[0] + hits + false)
    return f1


def _middle(best: np.ndarray) -> int:
    """The middle of the first run of True."""
    first = int(np.argmax(best))
    others = np.flatnonzero(~best[first:])
    length = int(others[0]) if len(others) else len(best) - first
    return first + (length - 1) // 2


def _crossing(thresholds: FloatArray, rising: FloatArray) -> float:
    """Where a function that rises from below zero to above it is zero."""
    last_below = int(np.flatnonzero(rising < 0)[-1])
    first_above = int(np.flatnonzero(rising > 0)[0])
    if first_above > last_below + 1:  # Zero on a plateau: its middle.
        return float(thresholds[last_below + 1 : first_above].mean())
    return float(
        np.interp(
            0.0,
            rising[last_below : first_above + 1],
            thresholds[last_below : first_above + 1],
        )
    )
