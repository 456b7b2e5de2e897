"""Confidence intervals of results, and paired comparisons of two models.

Intervals are percentiles of bootstrap samples of queries, or of classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from keras_dml.evaluation.results import Results
from keras_dml.utils.arguments import check_choice, check_count, check_type
from keras_dml.utils.types import FloatArray, Fraction, Rows
from keras_dml.utils.vectors import blocks

UNITS = ("queries", "classes")

FEWEST_CLASSES = 5
"""With fewer classes, samples repeat too often for an interval."""

Ends: TypeAlias = tuple[float, float] | None
"""Lower and upper end of an interval; None without one."""


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval.

    Attributes:
        estimate: The value measured.
        low: Lower end; NaN without an interval.
        high: Upper end.
    """

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        if np.isnan(self.low):
            return f"{self.estimate:.4f} [no interval]"
        return f"{self.estimate:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class Difference(Interval):
    """The improvement of the second of two results over the first.

    Attributes:
        share_better: Share of resamples in which the second is better; ties
            count half. If it is near 0.5, neither is known to be better.
        p_value: Two-sided p value of the hypothesis that there is no
            difference: twice the smaller share of resamples on either side of
            zero, including the measured one. It cannot be below 2 /
            (num_resamples + 1). It is NaN without an interval, as is
            `share_better`.
    """

    share_better: float
    p_value: float


def bootstrap(
    results: Results,
    *,
    confidence: float = 0.95,
    num_resamples: int = 1000,
    units: str = "queries",
    seed: int = 0,
) -> dict[str, Interval]:
    """Confidence intervals of the retrieval metrics, by percentiles.

    Args:
        results: The result of `evaluate`.
        confidence: Probability mass of the intervals.
        num_resamples: Number of bootstrap samples.
        units: Units to draw with replacement: "queries", with fixed classes;
            or "classes" with all their queries, which measures how the metric
            varies with the classes in the test set, and gives wider intervals.
            With fewer than 5 classes there are none: their ends are NaN.
        seed: Seed of the draws.

    Returns:
        An interval for each retrieval metric.

    Raises:
        ValueError: If an argument is not as described.

    Reference:
        Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
        sections 13.3 and 8.3.
    """
    if not results.per_query:
        raise ValueError(
            "`results` of bootstrap must have a retrieval metric. Received: "
            f"{tuple(results)}. Add one to `metrics` of evaluate."
        )
    options = confidence, num_resamples, units, seed
    labels = results.query_labels
    weights = {name: results.weights(name) for name in results.per_query}
    stats = resample("bootstrap", results.per_query, weights, labels, *options)
    return {name: interval for name, (interval, _) in stats.items()}


class Comparison(dict[str, Difference]):
    """Differences of two results on the same queries, by metric."""

    def __init__(
        self,
        first: Results,
        second: Results,
        differences: dict[str, Difference],
    ) -> None:
        super().__init__(differences)
        self._first = first
        self._second = second

    def better(self, metric: str) -> Rows:
        """Returns rows of queries where the second is better, largest gain
        first."""
        return self._sort_by_gain(metric, sign=1)

    def worse(self, metric: str) -> Rows:
        """Returns rows of queries where the second is worse, largest loss
        first."""
        return self._sort_by_gain(metric, sign=-1)

    def _sort_by_gain(self, metric: str, sign: int) -> Rows:
        gain = self._second.per_query[metric] - self._first.per_query[metric]
        gain = sign * gain
        order = np.argsort(-gain, kind="stable")
        return self._first.query_rows[order[: int((gain > 0).sum())]]

    def __str__(self) -> str:
        width = max(len(name) for name in self)
        return "\n".join(
            f"{name:<{width}}  {difference.estimate:+.4f} "
            f"[{difference.low:+.4f}, {difference.high:+.4f}], better in "
            f"{difference.share_better:.1%} of resamples"
            for name, difference in self.items()
        )


def compare(
    first: Results,
    second: Results,
    *,
    confidence: float = 0.95,
    num_resamples: int = 1000,
    units: str = "queries",
    seed: int = 0,
) -> Comparison:
    """Paired comparison of two models on the same queries.

    Every resample uses the same queries for both models, so the difficulty of
    queries that are hard for both cancels out.

    Args:
        first: Results of the first model.
        second: Results of the second.
        confidence, num_resamples, units, seed: See `bootstrap`.

    Returns:
        The second minus the first, for each retrieval metric that both have.

    Raises:
        ValueError: If the queries differ, or an argument is not as described.

    Reference:
        Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
        sections 13.3 and 15.4; for p values that are never zero, Davison
        and Hinkley, "Bootstrap Methods and their Application", 1997,
        section 4.4.
    """
    same = np.array_equal(first.query_rows, second.query_rows)
    if not same or not np.array_equal(first.query_labels, second.query_labels):
        raise ValueError(
            "`first` and `second` of compare must have the same queries. "
            f"Received: {first.num_queries} and {second.num_queries} queries, "
            f"{'the same rows' if same else 'different rows'}. Evaluate "
            "both on the same images and protocol."
        )
    gains = {
        name: second.per_query[name] - values
        for name, values in first.per_query.items()
        if name in second.per_query
    }
    if not gains:
        raise ValueError(
            "`first` and `second` of compare must share a retrieval "
            f"metric. Received: {tuple(first)} and {tuple(second)}."
        )
    options = confidence, num_resamples, units, seed
    weights = {name: first.weights(name) for name in gains}
    stats = resample("compare", gains, weights, first.query_labels, *options)
    differences = {}
    for name, (gain, means) in stats.items():
        # Samples on the smaller side of zero, and the measured value itself.
        smaller = 1 + min((means <= 0).sum(), (means >= 0).sum())
        share = float((means > 0).mean() + 0.5 * (means == 0).mean())
        tests = share, float(min(1, 2 * smaller / (num_resamples + 1)))
        if np.isnan(gain.low):
            tests = np.nan, np.nan
        ends = gain.low, gain.high
        differences[name] = Difference(gain.estimate, *ends, *tests)
    return Comparison(first, second, differences)


def resample(
    owner: str,
    values: Mapping[str, FloatArray],
    weights: Mapping[str, FloatArray],
    labels: Rows,
    confidence: float = 0.95,
    num_resamples: int = 1000,
    units: str = "queries",
    seed: int = 0,
) -> dict[str, tuple[Interval, FloatArray]]:
    """Bootstraps means; returns each with its interval and its samples.

    Means are weighted by the weight of each query in a metric.
    """
    check_type(owner, "confidence", confidence, Fraction)
    check_count(owner, "num_resamples", num_resamples)
    check_choice(owner, "units", units, UNITS)
    table = np.stack(list(values.values()), axis=1)
    share = np.stack([weights[name] for name in values], axis=1)
    weighted = share * np.where(share > 0, table, 0)
    unit_of_query = np.arange(len(labels))
    if units == "classes":
        unit_of_query = np.unique(labels, return_inverse=True)[1]
    # A unit enters a sample by the sum and number of its queries, weighted
    # with how often it is drawn.
    count = int(unit_of_query.max()) + 1
    sums, sizes = (
        np.stack([np.bincount(unit_of_query, x, count) for x in part.T], axis=1)
        for part in (weighted, share)
    )
    rng = np.random.default_rng(seed)
    means = np.empty((num_resamples, len(values)))
    for samples in blocks(num_resamples, max(1, 2**21 // count)):
        times = times_drawn(rng, samples.stop - samples.start, count)
        total = times @ sizes
        # A sample without any query that has a value is NaN.
        empty = np.full(total.shape, np.nan)
        means[samples] = np.divide(times @ sums, total, empty, where=total > 0)
    tail = (1 - confidence) / 2
    quantile = np.nanquantile if np.isnan(means).any() else np.quantile
    ends = quantile(means, [tail, 1 - tail], axis=0)
    if units == "classes" and count < FEWEST_CLASSES:
        ends = np.full_like(ends, np.nan)
    plain = (share == 1).all(axis=0)
    estimates = np.where(
        plain, table.mean(axis=0), weighted.sum(axis=0) / share.sum(axis=0)
    )
    rows = np.stack([estimates, *ends], axis=1).tolist()
    return {
        name: (Interval(*row), means[:, i])
        for i, (name, row) in enumerate(zip(values, rows, strict=True))
    }


def times_drawn(
    rng: np.random.Generator, samples: int, units: int
) -> FloatArray:
    """How often samples contain each of `units`, (samples, units)."""
    draws = rng.integers(0, units, (samples, units))
    draws += units * np.arange(samples)[:, None]
    times = np.bincount(draws.ravel(), minlength=samples * units)
    return times.reshape(samples, units).astype(np.float64)


def percentiles(
    samples: FloatArray, estimate: float, confidence: float
) -> Ends:
    """The percentile interval of an estimate.

    It is None if no sample, (B,), has a value other than NaN, or if the
    estimate lies outside, because samples do not behave as the data then.
    """
    values = samples[~np.isnan(samples)]
    if not len(values):
        return None
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail]).tolist()
    rounding = 1e-6 * max(1.0, abs(estimate))
    if not low - rounding <= estimate <= high + rounding:
        return None
    return min(low, estimate), max(high, estimate)
