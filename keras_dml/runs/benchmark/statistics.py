"""Means over seeds, differences between recipes, and how sure they are."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keras_dml.evaluation import Interval, Results
from keras_dml.utils.types import FloatArray


@dataclass(frozen=True)
class PairedDifference(Interval):
    """A mean difference over pairs, with its interval.

    Attributes:
        p_value: Of the two-sided paired t test; NaN where all pairs
            differ by nothing, or there is only one.
    """

    p_value: float


def mean_interval(
    values: Sequence[float] | FloatArray, confidence: float = 0.95
) -> Interval:
    """The mean of independent values and its confidence interval.

    mean ± t · s / √n, with s the sample's standard deviation and t the
    quantile of Student's distribution with n − 1 degrees of freedom.

    Args:
        values: One for each seed.
        confidence: Probability mass of the interval.

    Returns:
        The interval; its ends are NaN for a single value, or if a value
        is not finite.
    """
    from scipy import stats

    count = len(values)
    mean = float(np.mean(values))
    if count < 2 or not np.isfinite(values).all():
        return Interval(mean, math.nan, math.nan)
    quantile = stats.t.ppf((1 + confidence) / 2, count - 1)
    half = float(quantile * stats.sem(values))
    return Interval(mean, mean - half, mean + half)


def paired_difference(
    first: Sequence[float], second: Sequence[float]
) -> PairedDifference:
    """How much greater the second of two paired samples is.

    Pairing by seed takes out what the seed decides for both: the first
    weights and the order of the batches, as far as recipes share them.

    Args:
        first: One value for each seed.
        second: The other recipe's, for the same seeds.
    """
    from scipy import stats

    with warnings.catch_warnings():
        # Of one pair, and of differences that are all alike or not finite.
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = mean_interval(np.subtract(second, first))
        p_value = float(stats.ttest_rel(second, first).pvalue)
    return PairedDifference(**vars(interval), p_value=p_value)


def averaged(results: Sequence[Results]) -> Results:
    """Results of several models on the same queries, averaged by query.

    Resampling the queries of the average asks how the mean over these
    models varies with the queries.

    Args:
        results: One for each seed, all on the same images and protocol.

    Raises:
        ValueError: If the queries differ.
    """
    first = results[0]
    for other in results[1:]:
        if not np.array_equal(first.query_rows, other.query_rows):
            raise ValueError(
                "`results` of averaged must have the same queries. "
                f"Received: {first.num_queries} and {other.num_queries} "
                "queries in different rows. Measure all on the same images."
            )
    about = first.to_dict()
    del about["metrics"]
    return Results(
        {name: float(np.mean([r[name] for r in results])) for name in first},
        **{**about, "per_seed": {}},
        per_query={
            name: np.mean([r.per_query[name] for r in results], axis=0)
            for name in first.per_query
        },
        query_rows=first.query_rows,
        query_labels=first.query_labels,
    )
