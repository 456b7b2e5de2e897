"""Bootstrap samples of queries or classes, and intervals by percentiles."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from keras_dml.utils.arguments import check_choice, check_count, check_type
from keras_dml.utils.types import FloatArray, Fraction, Rows
from keras_dml.utils.vectors import blocks

UNITS = ("queries", "classes")

FEWEST_CLASSES = 5
"""Of fewer classes, samples repeat each other too often for an interval."""

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


def resampled(
    owner: str,
    values: Mapping[str, FloatArray],
    weights: Mapping[str, FloatArray],
    labels: Rows,
    confidence: float = 0.95,
    num_resamples: int = 1000,
    units: str = "queries",
    seed: int = 0,
) -> dict[str, tuple[Interval, FloatArray]]:
    """The mean of each metric with its interval, and in each resample.

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
    # Sums over the queries of a unit: how often a unit is drawn then
    # weighs its sum and its size.
    count = int(unit_of_query.max()) + 1
    sums, sizes = (
        np.stack([np.bincount(unit_of_query, x, count) for x in part.T], axis=1)
        for part in (weighted, share)
    )
    rng = np.random.default_rng(seed)
    means = np.empty((num_resamples, len(values)))
    for some in blocks(num_resamples, max(1, 2**21 // count)):
        times = times_drawn(rng, some.stop - some.start, count)
        total = times @ sizes
        # A sample may have no query with a value.
        empty = np.full(total.shape, np.nan)
        means[some] = np.divide(times @ sums, total, empty, where=total > 0)
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
    drawn = rng.integers(0, units, (samples, units))
    drawn += units * np.arange(samples)[:, None]
    times = np.bincount(drawn.ravel(), minlength=samples * units)
    return times.reshape(samples, units).astype(np.float64)


def percentiles(
    samples: FloatArray, estimate: float, confidence: float
) -> Ends:
    """The percentile interval of an estimate.

    It is None if no sample, (B,), has a value other than NaN, or if the
    estimate lies outside, because samples do not behave as the data then.
    """
    known = samples[~np.isnan(samples)]
    if not len(known):
        return None
    tail = (1 - confidence) / 2
    low, high = np.quantile(known, [tail, 1 - tail]).tolist()
    rounding = 1e-6 * max(1.0, abs(estimate))
    if not low - rounding <= estimate <= high + rounding:
        return None
    return min(low, estimate), max(high, estimate)
