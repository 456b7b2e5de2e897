"""Verification (1:1): whether two images are of one class.

`calibrate` chooses the score from which they are, `evaluate_trials` measures a
list of pairs, and metrics such as "eer" measure all pairs of a search.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from keras_dml.data.relations import PairSet, Relations
from keras_dml.data.validation import check_known
from keras_dml.embedding import EmbeddingShards
from keras_dml.evaluation.confidence import (
    FEWEST_CLASSES,
    Ends,
    Interval,
    percentiles,
)
from keras_dml.evaluation.label_sets import as_class_ids
from keras_dml.evaluation.metrics import METRICS, expand_metrics
from keras_dml.evaluation.pair_counts import (
    AllPairs,
    BootstrapCounts,
    Factors,
    PairCounts,
    Trials,
    quantile_positions,
    threshold_at,
)
from keras_dml.evaluation.ranks.scores import DistanceName
from keras_dml.utils.arguments import check_arguments
from keras_dml.utils.registry import Paper
from keras_dml.utils.types import (
    Config,
    FloatArray,
    Fraction,
    NonNegativeInt,
    Rows,
)
from keras_dml.utils.vectors import as_rows, as_unit_rows

_TRIAL_QUANTILES = 1024
"""Number of quantiles for trials, which are fewer than all pairs are."""

_ISO = Paper(
    "Information technology – Biometric performance testing and reporting",
    "ISO/IEC 19795-1",
    "ISO 2021",
    "https://www.iso.org/standard/73515.html",
)


class StoredThreshold:
    """Base of the dataclasses of thresholds, which are saved as JSON."""

    def to_dict(self) -> Config:
        """Returns plain values that can be written as JSON."""
        return asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls, config: Config) -> Self:
        """Returns the threshold from the result of `to_dict`, or its JSON
        form."""
        return cls(**config)


@dataclass(frozen=True)
class Threshold(StoredThreshold):
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
        """The rates of pairs that reach it, in words."""
        return (
            f"reached by {percent(self.true_positive_rate)} of same-class "
            f"pairs and {percent(self.false_positive_rate)} of "
            "different-class pairs"
        )


def percent(rate: float) -> str:
    """Formats a rate with three digits, as false positive rates are small."""
    return f"{100 * rate:.3g}%"


@dataclass(frozen=True)
class Criterion:
    """The criterion that a threshold optimizes: "eer", "f1" or "fpr"."""

    name: str
    rate: float = 0.0  # The false positive rate that "fpr" allows.

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
        # Shares times both totals are integers, whose comparison is exact.
        missed = (counts.positives - hits) * counts.negatives
        return sum(_best(-np.abs(missed - false * counts.positives))) // 2

    def choose_between(
        self, positions: Rows, hits: FloatArray, false: FloatArray, gap: Rows
    ) -> float:
        """The best position, from the pairs that some positions, (T,), accept.

        `hits` and `false` are the same-class and different-class pairs that
        reach each; the first position accepts all, the last none. `gap` is the
        lowest position that no different-class pair reaches, and the highest
        that all same-class pairs reach. The result is interpolated where pairs
        lie between positions, and NaN without pairs of both kinds.
        """
        if not (hits[0] and false[0]):
            return np.nan
        if gap[0] <= gap[1] and self.name != "fpr":
            return float(gap.mean())
        if self.name == "f1":
            return _middle(positions, _f1(hits, false))
        if self.name == "fpr":
            balance = self.rate * false[0] - false
            above = int(np.argmax(balance >= 0))
        else:
            balance = (hits[0] - hits) * false[0] - false * hits[0]
            above = int(np.argmax(balance >= 0))
            # At a single score, or on a plateau, `choose` takes the middle.
            if not balance[above] or np.diff(positions)[above - 1] == 1:
                return _middle(positions, -np.abs(balance))
        ends = slice(above - 1, above + 1)
        return float(np.interp(0.0, balance[ends], positions[ends]))


@check_arguments
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
    rule = Criterion.parse(criterion)
    if isinstance(embeddings, EmbeddingShards):
        labels = embeddings.labels if labels is None else labels
        embeddings = embeddings.array()
    if labels is None:
        raise ValueError(
            "`labels` of calibrate must be integers, one per embedding, "
            "unless shards have their own. Received: labels=None."
        )
    factors = factors_of(embeddings, distance, "calibrate")
    count = len(factors.lhs)
    pairs: AllPairs | Trials
    if isinstance(labels, PairSet):
        pairs = Trials(factors, labels, "calibrate", progress)
    else:
        pairs = AllPairs(factors, _classes(labels, count), progress)
    counts = pairs.counts
    _check_pairs(counts, rule)
    position = rule.choose(counts)
    hits = int(counts.accepted_positive[position])
    false = int(counts.accepted_negative[position])
    value = float(factors.outer(threshold_at(position)))
    rate = hits / counts.positives
    intervals: list[Ends] = [None, None]
    problem = ""
    if num_resamples and pairs.num_classes < FEWEST_CLASSES:
        problem = f"{pairs.num_classes} classes are too few"
    elif num_resamples:
        positions = quantile_positions(counts)
        bootstrap = pairs.bootstrap(num_resamples, seed, positions)
        sample_positions, rates = _choose_in_samples(rule, positions, bootstrap)
        values = factors.outer(threshold_at(sample_positions))
        intervals = [
            percentiles(values, value, confidence),
            percentiles(rates, rate, confidence),
        ]
        if intervals[0] is None:
            problem = "resampled classes do not reproduce the threshold"
    low, high = intervals[0] or (None, None)
    rate_low, rate_high = intervals[1] or (None, None)
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
        num_images=count,
        num_classes=pairs.num_classes,
        num_positive_pairs=counts.positives,
        num_negative_pairs=counts.negatives,
        distance=distance,
        true_positive_low=rate_low,
        true_positive_high=rate_high,
        no_interval=problem,
    )


def factors_of(embeddings: Any, distance: str, owner: str) -> Factors:
    """Factors of all pairs of embeddings, (N, D), validated."""
    as_valid = as_unit_rows if distance == "cosine" else as_rows
    x = as_valid(embeddings, "embeddings", owner)
    return Factors.of(x, x, distance)


def check_pair_set(pairs: Any, owner: str) -> None:
    """Raises `ValueError` unless trials are a `PairSet`."""
    if not isinstance(pairs, PairSet):
        raise ValueError(
            f"`pairs` of {owner} must be a PairSet. Received: pairs of type "
            f"{type(pairs).__name__}. Use keras_dml.data.PairSet(examples, "
            "pairs, positive)."
        )


def _classes(labels: Any, count: int) -> Rows:
    """Classes, numbered from 0, (N,)."""
    if isinstance(labels, Relations):
        raise ValueError(
            "`labels` of calibrate must be classes or a PairSet. Received: "
            f"{labels!r}. Use a PairSet, whose pairs say 1 or 0."
        )
    check_known(labels, "labels", "calibrate")
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


def _choose_in_samples(
    criterion: Criterion, positions: Rows, counts: BootstrapCounts
) -> tuple[FloatArray, FloatArray]:
    """Chooses a position in each sample; also returns shares of hits, (B,).

    Both are NaN in samples without pairs of both kinds.
    """
    gaps = np.stack([counts.highest + 1, counts.lowest], axis=1)
    sample_positions, rates = [], []
    for hits, false, gap in zip(counts.hits, counts.false, gaps, strict=True):
        position = criterion.choose_between(positions, hits, false, gap)
        share = np.interp(position, positions, hits / max(hits[0], 1))
        sample_positions.append(position)
        rates.append(1.0 if position <= gap[1] else share)
    return np.array(sample_positions), np.array(rates)


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
    """First and last of the first positions with the highest score."""
    best = score == score.max()
    first = int(np.argmax(best))
    lower = np.flatnonzero(~best[first:])
    length = int(lower[0]) if len(lower) else len(best) - first
    return first, first + length - 1


def _middle(positions: Rows, score: FloatArray) -> float:
    """The middle of the first run of positions with the highest score."""
    first, last = _best(score)
    return float(positions[first] + positions[last]) / 2


@check_arguments
def evaluate_trials(
    embeddings: Any,
    pairs: PairSet,
    metrics: str | Sequence[str] = ("eer", "tpr@fpr=0.01", "min_dcf=0.01"),
    *,
    distance: DistanceName = "cosine",
    confidence: Fraction = 0.95,
    num_resamples: NonNegativeInt = 1000,
    seed: int = 0,
    progress: bool | None = None,
) -> dict[str, Interval]:
    """Measures verification (1:1) on a list of trials.

    This is the protocol of VoxCeleb, LFW and IJB: only the pairs of the list
    are compared. `calibrate` chooses a threshold from the same list.

    Args:
        embeddings: Of the examples of the pairs, in their order, (N, D); see
            `embed`.
        pairs: The trials, with 1 for same and 0 for different subjects.
        metrics: Names of metrics of pairs in `METRICS`: "eer", "tpr@fpr=0.01"
            (TAR at FAR), "min_dcf=0.01", "fnmr@fmr=0.01".
        distance: "cosine", "euclidean" or "dot". Thresholds are 2⁻²⁰ apart on
            scores scaled to −1 to 1.
        confidence: Probability mass of the intervals.
        num_resamples: Number of bootstrap samples of the subjects, see
            `calibrate`; 0 for no intervals.
        seed: Seed of the draws.
        progress: Whether to show progress, after two seconds; None shows it in
            a terminal.

    Returns:
        Each metric by name. The ends of its interval are NaN without one: with
        fewer than 5 subjects, samples repeat each other too often.

    Raises:
        ValueError: If an argument is not as described, or positive or negative
            pairs are missing.

    Example:

    ```python
    pairs = PairSet(images, [[0, 1], [0, 2]], positive=[1, 0])
    results = evaluate_trials(embed(model, images), pairs)
    ```
    """
    owner = "evaluate_trials"
    check_pair_set(pairs, owner)
    requested_metrics = expand_metrics(metrics, (), owner)
    for metric in requested_metrics:
        if metric.input != "pairs":
            raise ValueError(
                f"`metrics` of {owner} must be metrics of pairs, such as "
                f"'eer' or 'tpr@fpr=0.01'. Received: {metric.name!r}, of "
                f"{metric.input}. Use evaluate."
            )
    factors = factors_of(embeddings, distance, owner)
    trials = Trials(factors, pairs, owner, progress)
    counts = trials.counts
    if not (counts.positives and counts.negatives):
        raise ValueError(
            f"`pairs` of {owner} must be positive and negative ones. Received: "
            f"{counts.positives} positive and {counts.negatives} negative "
            "pairs. Use `positive` of PairSet, 1 and 0."
        )
    samples: list[PairCounts] = []
    if num_resamples and trials.num_classes >= FEWEST_CLASSES:
        positions = quantile_positions(counts, _TRIAL_QUANTILES)
        bootstrap = trials.bootstrap(num_resamples, seed, positions)
        samples = list(map(PairCounts, bootstrap.hits, bootstrap.false))
    results = {}
    for metric in requested_metrics:
        estimate = metric.compute(counts)
        values = np.array([metric.compute(x) for x in samples])
        ends = percentiles(values, estimate, confidence) or (np.nan, np.nan)
        results[metric.name] = Interval(estimate, *ends)
    return results


@METRICS.register(
    "fnmr@fmr=x",
    "share of same-class pairs below the threshold that a share x of "
    "different-class pairs reaches",
    _ISO,
    of="pairs",
)
def fnmr_at_fmr(counts: PairCounts, x: float) -> float:
    """False non-match rate at a false match rate of at most x.

    The threshold is the lowest that at most this share of the different-class
    pairs reaches. The value is the share of the same-class pairs that do not
    reach it, which is 1 minus the true positive rate of
    `calibrate(criterion="fpr=…")`. Thresholds are 2⁻²⁰ apart. `fnmr@fmr` of
    Open Metric Learning interpolates the threshold between two distances, and
    counts pairs that equal it as missed.

    It is a rate of pairs, without a value for each query: `calibrate` and
    `evaluate_trials` give its interval, `bootstrap` does not.

    Args:
        counts: Pairs by their scores.
        x: The false match rate.

    Returns:
        The rate; NaN without same-class or without different-class pairs.
    """
    if not (counts.positives and counts.negatives):
        return float("nan")
    allowed = counts.accepted_negative <= x * counts.negatives
    position = int(np.argmax(allowed))
    accepted = int(counts.accepted_positive[position])
    return 1 - accepted / counts.positives


@METRICS.register(
    "tpr@fpr=x",
    "share of same-class pairs at the threshold that a share x of "
    "different-class pairs reaches (TAR at FAR)",
    _ISO,
    of="pairs",
)
def tpr_at_fpr(counts: PairCounts, x: float) -> float:
    """True positive rate at a false positive rate of at most x (TAR at FAR).

    It is 1 minus `fnmr_at_fmr`.
    """
    return 1 - fnmr_at_fmr(counts, x)


@METRICS.register(
    "eer",
    "error rate at the threshold where as large a share of same-class pairs "
    "is missed as of different-class pairs accepted",
    _ISO,
    of="pairs",
)
def equal_error_rate(counts: PairCounts) -> float:
    """Equal error rate: the mean of both rates where they differ least.

    Args:
        counts: Pairs by their scores.

    Returns:
        The rate; NaN without same-class or without different-class pairs.
    """
    missed, false = _error_rates(counts)
    nearest = int(np.argmin(np.abs(missed - false)))
    return float(missed[nearest] + false[nearest]) / 2


@METRICS.register(
    "min_dcf=x",
    "lowest detection cost of any threshold if a share x of pairs are "
    "same-class pairs; 1 is the cost of one answer for all pairs",
    Paper(
        "The DET curve in assessment of detection task performance",
        "Martin et al.",
        "Eurospeech 1997",
        "https://doi.org/10.21437/Eurospeech.1997-504",
    ),
    of="pairs",
)
def min_dcf(counts: PairCounts, x: float) -> float:
    """Lowest normalized detection cost, for a prior x of same-class pairs.

    This is the cost x·FNMR + (1 − x)·FMR at the threshold where it is lowest,
    divided by min(x, 1 − x), the lowest cost of one answer for all pairs, as in
    the speaker recognition evaluations of NIST.

    Args:
        counts: Pairs by their scores.
        x: The prior.

    Returns:
        The cost; NaN without same-class or without different-class pairs.
    """
    missed, false = _error_rates(counts)
    return float((x * missed + (1 - x) * false).min()) / min(x, 1 - x)


def _error_rates(counts: PairCounts) -> tuple[FloatArray, FloatArray]:
    """False non-match and false match rates, or NaN, at every threshold."""
    missed = 1 - counts.accepted_positive / (counts.positives or np.nan)
    return missed, counts.accepted_negative / (counts.negatives or np.nan)
