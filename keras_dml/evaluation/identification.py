"""Identification (1:N): thresholds for whether a search finds a match."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from keras_dml.evaluation.confidence import times_drawn
from keras_dml.evaluation.verification import (
    Criterion,
    StoredThreshold,
    Threshold,
    percent,
)
from keras_dml.utils.types import FloatArray

DEFAULT = "fpir=0.01"
"""What `Index.calibrate` chooses a threshold by."""

_FOLDS = 100


@dataclass(frozen=True)
class IdentificationThreshold(StoredThreshold):
    """The score from which a search says "match", and its rates per query.

    Attributes:
        value: The score: a cosine, a dot product, or a negative distance.
        low: Lower end of its confidence interval; None without one.
        high: Upper end.
        criterion: How it was chosen, such as "fpir=0.01".
        false_positive_identification_rate: Share of queries whose class is not
            in the gallery that get a match, on classes that the threshold was
            not chosen on; all classes count alike.
        false_positive_low: Lower end of its confidence interval; None without
            one.
        false_positive_high: Upper end.
        true_positive_identification_rate: Share of the gallery's images whose
            nearest other image is a match and of the same class; None without
            classes of several images.
        num_true_positive_queries: Number of gallery images it was measured on.
        gallery_rows: Number of rows that were searched.
        confidence: Probability mass of the intervals.
        num_resamples: Number of bootstrap samples.
        num_images: Number of calibration images.
        num_classes: Number of calibration classes.
        distance: The kind of score: "cosine", "euclidean" or "dot".
    """

    value: float
    low: float | None
    high: float | None
    criterion: str
    false_positive_identification_rate: float
    false_positive_low: float | None
    false_positive_high: float | None
    true_positive_identification_rate: float | None
    num_true_positive_queries: int
    gallery_rows: int
    confidence: float
    num_resamples: int
    num_images: int
    num_classes: int
    distance: str = "cosine"

    def __str__(self) -> str:
        about = self.criterion
        if self.distance != "cosine":
            about += f", {self.distance}"
        ends = _ends(self.low, self.high, "{:.4f}".format)
        return f"{self.value:.4f}{ends} ({about}): {self.meaning}"

    @property
    def meaning(self) -> str:
        """What its rates are rates of, in words."""
        low, high = self.false_positive_low, self.false_positive_high
        said = (
            f"reached by {percent(self.false_positive_identification_rate)}"
            f"{_ends(low, high, percent)} of queries whose class is not in the "
            f"gallery of {self.gallery_rows:,} rows, measured on held-out ones "
            f"of {self.num_classes} classes"
        )
        if self.true_positive_identification_rate is not None:
            rate = percent(self.true_positive_identification_rate)
            said += f"; of queries whose class is in it, {rate} get that match"
        return said


AnyThreshold: TypeAlias = Threshold | IdentificationThreshold
"""What says which hits are matches: of pairs of images, or of searches."""


def _ends(low: float | None, high: float | None, text: Any) -> str:
    if low is None or high is None:
        return ""
    return f" [{text(low)}, {text(high)}]"


def parse_rate(criterion: str) -> float | None:
    """The rate of "fpir=0.01"; None for a criterion of pairs."""
    name, _, text = str(criterion).partition("=")
    if name != "fpir":
        Criterion.parse(str(criterion))
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1:
        raise ValueError(
            "`criterion` of Index.calibrate must be 'fpir=RATE' with a rate "
            f"between 0 and 1. Received: criterion={criterion!r}. Use, for "
            f"example, {DEFAULT!r}."
        )
    return rate


class OpenSet:
    """The best scores that queries of absent classes reach in a gallery.

    `best` are those of each query without rows of its own class, (Q,), and
    `classes` these classes, of any type. `rate` is the share of queries that
    may get a match; all classes count alike, however many images they have.
    """

    def __init__(self, best: FloatArray, classes: Any, rate: float) -> None:
        found = np.unique(np.asarray(classes), return_inverse=True)
        order = np.argsort(-best, kind="stable")
        self.num_classes = len(found[0])
        # Descending, so that the first that are too many end the search.
        self._best = best[order].astype(np.float64)
        self._class = found[1][order]
        self._share = 1 / np.bincount(self._class)
        self._rate = rate

    def threshold(self, times: FloatArray) -> float:
        """The threshold that a query of a new class reaches at that rate.

        It lies just above the score at that quantile, interpolated between two
        scores. With the new query, there are n + 1: so only n·rate − 1 of the n
        known ones reach it, and none where that is negative. `times` is how
        often each class is drawn, (C,).
        """
        weights = (times * self._share)[self._class]
        reached = np.cumsum(weights)
        allowed = self._rate * reached[-1]
        # Rounding must not decide whether a rate is kept exactly.
        after = int(np.searchsorted(reached, allowed * (1 + 1e-9), "right"))
        score = self._best[max(after - 1, 0)]
        if after:
            rest = max(0.0, allowed - reached[after - 1]) / weights[after]
            score += rest * (self._best[after] - score)
        return float(np.nextafter(np.float32(score), np.float32(np.inf)))

    def reached(self, threshold: float) -> FloatArray:
        """Share of the queries of each class that reach it, (C,)."""
        matches = self._class[self._best >= threshold]
        return np.bincount(matches, minlength=self.num_classes) * self._share

    def held_out(self, seed: int) -> FloatArray:
        """As `reached`, by thresholds that are chosen without the class, (C,).

        Classes are left out one at a time; of more than 100, in 100 groups.
        """
        count = self.num_classes
        fold = np.random.default_rng(seed).permutation(count) % _FOLDS
        rates = np.empty(count)
        for number in range(min(count, _FOLDS)):
            out = fold == number
            threshold = self.threshold((~out).astype(np.float64))
            rates[out] = self.reached(threshold)[out]
        return rates

    def resampled(
        self, num_resamples: int, seed: int
    ) -> tuple[FloatArray, FloatArray]:
        """Thresholds of samples of the classes, and their rates, (B,) each.

        The rate of each is that of the classes that are not in the sample, so
        that it varies with the classes that choose a threshold, too. It is NaN
        if all are.
        """
        rng = np.random.default_rng(seed)
        drawn = times_drawn(rng, num_resamples, self.num_classes)
        thresholds = np.array([self.threshold(times) for times in drawn])
        rates = np.full(num_resamples, np.nan)
        for sample, threshold in enumerate(thresholds.tolist()):
            out = drawn[sample] == 0
            if out.any():
                rates[sample] = self.reached(threshold)[out].mean()
        return thresholds, rates
