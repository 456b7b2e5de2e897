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

DEFAULT_CRITERION = "fpir=0.01"
"""Criterion of `Index.calibrate` by default."""

_MAX_FOLDS = 100


@dataclass(frozen=True)
class IdentificationThreshold(StoredThreshold):
    """The score from which a hit is a match, and its rates per query.

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
        """The rates of queries that reach it, in words."""
        low, high = self.false_positive_low, self.false_positive_high
        text = (
            f"reached by {percent(self.false_positive_identification_rate)}"
            f"{_ends(low, high, percent)} of queries whose class is not in the "
            f"gallery of {self.gallery_rows:,} rows, measured on held-out ones "
            f"of {self.num_classes} classes"
        )
        if self.true_positive_identification_rate is not None:
            rate = percent(self.true_positive_identification_rate)
            text += f"; of queries whose class is in it, {rate} get that match"
        return text


AnyThreshold: TypeAlias = Threshold | IdentificationThreshold
"""Threshold of a match: for pairs of images, or for searches."""


def _ends(low: float | None, high: float | None, text: Any) -> str:
    if low is None or high is None:
        return ""
    return f" [{text(low)}, {text(high)}]"


def parse_rate(criterion: str) -> float | None:
    """Parses the rate of "fpir=0.01"; returns None for criteria of pairs."""
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
            f"example, {DEFAULT_CRITERION!r}."
        )
    return rate


class OpenSet:
    """The best scores that queries of absent classes reach in a gallery.

    `best` are those of each query without rows of its own class, (Q,), and
    `classes` these classes, of any type. `rate` is the share of queries that
    may get a match; all classes count alike, however many images they have.
    """

    def __init__(self, best: FloatArray, classes: Any, rate: float) -> None:
        unique_classes = np.unique(np.asarray(classes), return_inverse=True)
        order = np.argsort(-best, kind="stable")
        self.num_classes = len(unique_classes[0])
        self._best = best[order].astype(np.float64)
        self._class = unique_classes[1][order]
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
        weight_sums = np.cumsum(weights)
        allowed = self._rate * weight_sums[-1]
        # Rounding must not decide whether a rate is kept exactly.
        after = int(np.searchsorted(weight_sums, allowed * (1 + 1e-9), "right"))
        score = self._best[max(after - 1, 0)]
        if after:
            rest = max(0.0, allowed - weight_sums[after - 1]) / weights[after]
            score += rest * (self._best[after] - score)
        return float(np.nextafter(np.float32(score), np.float32(np.inf)))

    def reached_shares(self, threshold: float) -> FloatArray:
        """Share of the queries of each class that reach a threshold, (C,)."""
        matches = self._class[self._best >= threshold]
        return np.bincount(matches, minlength=self.num_classes) * self._share

    def held_out_rates(self, seed: int) -> FloatArray:
        """Shares that reach a threshold chosen without their class, (C,).

        Classes are left out one at a time; of more than 100, in 100 groups.
        """
        count = self.num_classes
        fold = np.random.default_rng(seed).permutation(count) % _MAX_FOLDS
        rates = np.empty(count)
        for number in range(min(count, _MAX_FOLDS)):
            out = fold == number
            threshold = self.threshold((~out).astype(np.float64))
            rates[out] = self.reached_shares(threshold)[out]
        return rates

    def resample(
        self, num_resamples: int, seed: int
    ) -> tuple[FloatArray, FloatArray]:
        """Thresholds of samples of the classes, and their rates, (B,) each.

        The rate of each is that of the classes that are not in the sample, so
        that it varies with the classes that choose a threshold, too. It is NaN
        if all are.
        """
        rng = np.random.default_rng(seed)
        samples = times_drawn(rng, num_resamples, self.num_classes)
        thresholds = np.array([self.threshold(times) for times in samples])
        rates = np.full(num_resamples, np.nan)
        for number, threshold in enumerate(thresholds.tolist()):
            out = samples[number] == 0
            if out.any():
                rates[number] = self.reached_shares(threshold)[out].mean()
        return thresholds, rates
