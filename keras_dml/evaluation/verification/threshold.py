"""Thresholds: the score above which two images count as the same class."""

import contextlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from keras_dml.data.relations import PairSet, Relations
from keras_dml.embedding import EmbeddingShards
from keras_dml.evaluation.label_sets import as_class_ids
from keras_dml.evaluation.ranks.scores import DistanceName
from keras_dml.evaluation.resampling import FEWEST_CLASSES, Ends, percentiles
from keras_dml.evaluation.verification.pair_counts import (
    AllPairs,
    Drawn,
    Factors,
    PairCounts,
    quantile_positions,
    threshold_at,
)
from keras_dml.evaluation.verification.trials import Trials
from keras_dml.utils.arguments import checked
from keras_dml.utils.arrays import as_rows, as_unit_rows
from keras_dml.utils.types import (
    Config,
    FloatArray,
    Fraction,
    NonNegativeInt,
    Rows,
)


@dataclass(frozen=True)
class Threshold:
    """A calibrated threshold, and its rates on the calibration images.

    Attributes:
        value: The score from which two images count as the same class: a
            cosine, a dot product, or the negative of a Euclidean distance.
        low: Lower end of its confidence interval; None without one, see
            `no_interval`.
        high: Upper end.
        criterion: How it was chosen.
        true_positive_rate: Share of the same-class pairs that reach it.
        false_positive_rate: Share of the different-class pairs that reach it.
        precision: Share of same-class pairs among those that reach it. Unlike
            the rates, it depends on how many pairs of each kind there are.
        confidence: Probability mass of the interval.
        num_resamples: Number of bootstrap samples for the interval.
        num_images: Number of images.
        num_classes: Number of classes.
        num_positive_pairs: Number of same-class pairs.
        num_negative_pairs: Number of different-class pairs.
        distance: The kind of score: "cosine", "euclidean" or "dot".
        true_positive_low: Lower end of the interval of the true positive rate,
            from samples that each choose their own threshold; None without
            one.
        true_positive_high: Upper end.
        no_interval: Why there is no interval, if there is none.
    """

    value: float
    low: float | None
    high: float | None
    criterion: str
    true_positive_rate: float
    false_positive_rate: float
    precision: float
    confidence: float
    num_resamples: int
    num_images: int
    num_classes: int
    num_positive_pairs: int
    num_negative_pairs: int
    distance: str = "cosine"
    true_positive_low: float | None = None
    true_positive_high: float | None = None
    no_interval: str = ""

    def to_dict(self) -> Config:
        """Returns plain values that can be written as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, config: Config) -> "Threshold":
        """Returns the threshold from the result of `to_dict`, or its JSON
        form."""
        return cls(**config)

    def __str__(self) -> str:
        interval = ""
        if self.low is not None and self.high is not None:
            interval = f" [{self.low:.4f}, {self.high:.4f}]"
        elif self.no_interval:
            interval = f" [no interval: {self.no_interval}]"
        is_cosine = self.distance == "cosine"
        about = self.criterion + ("" if is_cosine else f", {self.distance}")
        return f"{self.value:.4f}{interval} ({about}): {self.meaning}"

    @property
    def meaning(self) -> str:
        """What its rates are rates of, in words."""
        return (
            f"reached by {percent(self.true_positive_rate)} of same-class "
            f"pairs and {percent(self.false_positive_rate)} of "
            "different-class pairs"
        )


def percent(rate: float) -> str:
    """Three significant digits, because false positive rates may be small."""
    return f"{100 * rate:.3g}%"


@dataclass(frozen=True)
class Criterion:
    """The criterion that a threshold optimizes.

    Attributes:
        name: "eer", "f1" or "fpr".
        rate: The false positive rate that "fpr" allows.
    """

    name: str
    rate: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "Criterion":
        """A criterion from "eer", "f1" or "fpr=0.01"."""
        if text in ("eer", "f1"):
            return cls(text)
        if text.startswith("fpr="):
            with contextlib.suppress(ValueError):
                if 0 < (rate := float(text.removeprefix("fpr="))) < 1:
                    return cls("fpr", rate)
        raise ValueError(
            "`criterion` of calibrate must be 'eer', 'f1' or 'fpr=RATE', with "
            f"a rate between 0 and 1. Received: criterion={text!r}. Use, for "
            "example, 'eer' or 'fpr=0.01'."
        )

    def choose(self, counts: PairCounts) -> int:
        """The position of the best threshold among all of them."""
        hits, false = counts.accepted_positive, counts.accepted_negative
        if self.name == "fpr":
            return int(np.argmax(false <= self.rate * counts.negatives))
        if self.name == "f1":
            return sum(_best(_f1(hits, false))) // 2
        # The shares, times both totals, to be exact.
        missed = (counts.positives - hits) * counts.negatives
        return sum(_best(-np.abs(missed - false * counts.positives))) // 2

    def choose_between(
        self, positions: Rows, hits: FloatArray, false: FloatArray, gap: Rows
    ) -> float:
        """The best position, from the pairs that some of them accept.

        Args:
            positions: Of thresholds, see `PairCounts`, ascending, (T,).
            hits: Same-class pairs that reach each, (T,); the first accepts
                all, the last none.
            false: Different-class pairs that reach each, (T,).
            gap: The lowest position that no different-class pair reaches, and
                the highest that all same-class pairs reach, (2,).

        Returns:
            A position, interpolated where pairs lie between; NaN without pairs
            of both kinds.
        """
        if not (hits[0] and false[0]):
            return np.nan
        if gap[0] <= gap[1] and self.name != "fpr":
            return float(gap.mean())
        if self.name == "f1":
            return _middle(positions, _f1(hits, false))
        if self.name == "fpr":
            rising = self.rate * false[0] - false
            above = int(np.argmax(rising >= 0))
        else:
            rising = (hits[0] - hits) * false[0] - false * hits[0]
            above = int(np.argmax(rising >= 0))
            # At a single score, or on a plateau, as `choose` does.
            if not rising[above] or np.diff(positions)[above - 1] == 1:
                return _middle(positions, -np.abs(rising))
        ends = slice(above - 1, above + 1)
        return float(np.interp(0.0, rising[ends], positions[ends]))


@checked
def calibrate(
    embeddings: Any,
    labels: Any = None,
    criterion: str = "eer",
    *,
    distance: DistanceName = "cosine",
    confidence: Fraction = 0.95,
    num_resamples: NonNegativeInt = 1000,
    seed: int = 0,
    progress: bool | None = None,
) -> Threshold:
    """Chooses a threshold by a criterion on all pairs of images.

    All N(N − 1)/2 pairs are counted, without sampling. Thresholds are
    multiples of 2⁻²⁰; if several are equally good, the middle one is chosen,
    as in the gap between two groups that do not overlap (but "fpr" chooses the
    lowest). For this purpose, dot products are divided by the largest squared
    norm, and squared Euclidean distances by twice that.

    The interval comes from a bootstrap over classes. Drawing pairs would be
    wrong: two pairs that share an image, or a class, are not independent, and
    intervals would be far too narrow. So would drawing images: the threshold
    is for unseen classes, and the variation between classes would be ignored.
    A class contributes its own pairs as often as it is drawn, and two classes
    contribute the pairs between them as often as the product of these numbers.
    More than 512 classes are drawn in 512 random groups. With few classes,
    below about 20, the interval is still too narrow; below 5 there is none.

    Args:
        embeddings: (N, D), of classes that the model was not trained on; for
            "cosine" they are normalized. `EmbeddingShards` and a `np.memmap`
            are read block by block.
        labels: Classes, (N,) integers or strings; by default those stored in
            shards. Or a list of trials, as in VoxCeleb, LFW and IJB: a
            `PairSet` of the N examples, whose pairs alone are compared. Its
            subjects, which the bootstrap draws as classes, are the labels of
            its examples, or else examples that positive pairs connect.
        criterion: "eer", where the share of same-class pairs that is missed
            equals the share of different-class pairs that is accepted (the
            equal error rate); "fpr=0.01", the lowest threshold that accepts at
            most this share of different-class pairs; "f1", where the harmonic
            mean of precision and recall of the pairs is largest. Only the last
            depends on the number of images per class.
        distance: "cosine", "euclidean" or "dot", the distance of the search.
            Scores are higher for nearer images: the score of a Euclidean
            distance is its negative.
        confidence: Probability mass of the interval.
        num_resamples: Number of bootstrap samples; 0 for no interval.
        seed: Seed of the draws.
        progress: Whether to show progress, after two seconds; None shows it in
            a terminal.

    Raises:
        ValueError: If there are no same-class or no different-class pairs, too
            few for the criterion, or if an argument is not as described.

    Reference:
        Bolle, Ratha and Pankanti, "Error analysis of pattern recognition
        systems: the subsets bootstrap", CVIU 2004; Fogliato, Patil and
        Perona, "Confidence intervals for error rates in 1:1 matching
        tasks", IJCV 2024, section 3.
    """
    chooses = Criterion.parse(criterion)
    if isinstance(embeddings, EmbeddingShards):
        labels = embeddings.labels if labels is None else labels
        embeddings = embeddings.array()
    if labels is None:
        raise ValueError(
            "`labels` of calibrate must be integers, one per embedding, "
            "unless shards have their own. Received: labels=None."
        )
    as_given = as_unit_rows if distance == "cosine" else as_rows
    x = as_given(embeddings, "embeddings", "calibrate")
    factors = Factors.of(x, x, distance)
    pairs: AllPairs | Trials
    if isinstance(labels, PairSet):
        pairs = Trials(factors, labels, "calibrate", progress)
    else:
        pairs = AllPairs(factors, _classes(labels, len(x)), progress)
    counts = pairs.counts
    _check_pairs(counts, chooses)
    position = chooses.choose(counts)
    hits = int(counts.accepted_positive[position])
    false = int(counts.accepted_negative[position])
    value = float(factors.outer(threshold_at(position)))
    rate = hits / counts.positives
    around: list[Ends] = [None, None]
    problem = ""
    if num_resamples and pairs.num_classes < FEWEST_CLASSES:
        problem = f"{pairs.num_classes} classes are too few"
    elif num_resamples:
        positions = quantile_positions(counts)
        drawn = pairs.drawn(num_resamples, seed, positions)
        chosen, rates = _resampled(chooses, positions, drawn)
        values = factors.outer(threshold_at(chosen))
        around = [
            percentiles(values, value, confidence),
            percentiles(rates, rate, confidence),
        ]
        if around[0] is None:
            problem = "resampled classes do not reproduce the threshold"
    low, high = around[0] or (None, None)
    rate_low, rate_high = around[1] or (None, None)
    return Threshold(
        value=value,
        low=low,
        high=high,
        criterion=criterion,
        true_positive_rate=rate,
        false_positive_rate=false / counts.negatives,
        precision=hits / (hits + false) if hits + false else 1.0,
        confidence=confidence,
        num_resamples=num_resamples,
        num_images=len(x),
        num_classes=pairs.num_classes,
        num_positive_pairs=counts.positives,
        num_negative_pairs=counts.negatives,
        distance=distance,
        true_positive_low=rate_low,
        true_positive_high=rate_high,
        no_interval=problem,
    )


def _classes(labels: Any, count: int) -> Rows:
    """Classes, numbered from 0, (N,)."""
    if isinstance(labels, Relations):
        raise ValueError(
            "`labels` of calibrate must be classes or a PairSet. Received: "
            f"{labels!r}. Use a PairSet, whose pairs say 1 or 0."
        )
    if np.ndim(labels) == 2:
        raise ValueError(
            "`labels` of calibrate must be one class per image, because the "
            "bootstrap draws classes. Received: labels of shape "
            f"{np.shape(labels)}. Calibrate with one label: labels[:, column]; "
            "or with a list of pairs: "
            "keras_dml.data.PairSet(examples, pairs, positive)."
        )
    ids = as_class_ids([labels], [count], ["labels"], "calibrate")[0][0]
    classes: Rows = np.unique(ids, return_inverse=True)[1]
    return classes


def _resampled(
    criterion: Criterion, positions: Rows, drawn: Drawn
) -> tuple[FloatArray, FloatArray]:
    """The position that each sample chooses, and its share of hits, (B,) each.

    Both are NaN in samples without pairs of both kinds.
    """
    gaps = np.stack([drawn.highest + 1, drawn.lowest], axis=1)
    chosen, rates = [], []
    for hits, false, gap in zip(drawn.hits, drawn.false, gaps, strict=True):
        position = criterion.choose_between(positions, hits, false, gap)
        share = np.interp(position, positions, hits / max(hits[0], 1))
        chosen.append(position)
        rates.append(1.0 if position <= gap[1] else share)
    return np.array(chosen), np.array(rates)


def _check_pairs(counts: PairCounts, criterion: Criterion) -> None:
    if not (counts.positives and counts.negatives):
        raise ValueError(
            "`labels` of calibrate must have same-class pairs and "
            "different-class pairs. "
            f"Received: {counts.positives} same-class pairs and "
            f"{counts.negatives} different-class pairs. Use at least two "
            "classes, one of them with two images, or a PairSet with both."
        )
    if criterion.rate * counts.negatives < 1 and criterion.name == "fpr":
        raise ValueError(
            "`criterion` of calibrate must allow at least one of the "
            "different-class pairs. Received: "
            f"criterion='fpr={criterion.rate:g}' and {counts.negatives} of "
            "these pairs. Use more images, or a rate of at least "
            f"{1 / counts.negatives:.2g}."
        )


def _f1(hits: FloatArray | Rows, false: FloatArray | Rows) -> FloatArray:
    f1: FloatArray = 2 * hits / (hits[0] + hits + false)
    return f1


def _best(score: FloatArray | Rows) -> tuple[int, int]:
    """The first run of positions with the highest score: its ends."""
    best = score == score.max()
    first = int(np.argmax(best))
    others = np.flatnonzero(~best[first:])
    length = int(others[0]) if len(others) else len(best) - first
    return first, first + length - 1


def _middle(positions: Rows, score: FloatArray) -> float:
    """The middle of the first run of positions with the highest score."""
    first, last = _best(score)
    return float(positions[first] + positions[last]) / 2
