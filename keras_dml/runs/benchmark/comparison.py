"""Comparison of the recipes of a benchmark, over seeds and queries."""

import dataclasses
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from keras_dml.evaluation import (
    Difference,
    Interval,
    Results,
    bootstrap,
    compare,
)
from keras_dml.runs.benchmark.plan import Entry, Plan
from keras_dml.runs.folder import QUERIES, read_queries
from keras_dml.utils.types import FloatArray

Done: TypeAlias = dict[tuple[str, int], Entry]
Entries: TypeAlias = dict[int, Entry]
"""Runs of one recipe that did not fail, by seed."""


@dataclass(frozen=True)
class PairedDifference(Interval):
    """A mean difference over pairs, with its interval.

    Attributes:
        p_value: Of the two-sided paired t test; NaN where all pairs
            differ by nothing, or there is only one.
    """

    p_value: float


@dataclass(frozen=True)
class Line:
    """The results of one recipe.

    Attributes:
        recipe: Its name.
        entries: Its runs that did not fail, by seed.
        seconds: Mean duration of a training; None without any.
        images_per_second: Mean speed of the training; None without any.
        over_seeds: Of each metric the mean over the seeds.
        over_queries: The same mean with its interval over queries, of the
            metrics that are means over queries.
        gains_by_seed: How much more of a metric it has than the baseline,
            paired by seed; empty for the baseline and where there is
            nothing to compare.
        gains_by_query: The same paired by query.
        shared_seeds: Number of seeds that it has in common with the
            baseline.
        on_other_images: Whether its test images are not the baseline's.
    """

    recipe: str
    entries: Entries
    seconds: float | None = None
    images_per_second: float | None = None
    over_seeds: Mapping[str, Interval] = field(default_factory=dict)
    over_queries: Mapping[str, Interval] = field(default_factory=dict)
    gains_by_seed: Mapping[str, PairedDifference] = field(default_factory=dict)
    gains_by_query: Mapping[str, Difference] = field(default_factory=dict)
    shared_seeds: int = 0
    on_other_images: bool = False


def compare_runs(plan: Plan, done: Done) -> list[Line]:
    """Results of each recipe of a plan, in its order."""
    entries: dict[str, Entries] = {
        recipe.name: {
            seed: entry
            for seed in range(plan.seeds)
            if (entry := done.get((recipe.name, seed))) and entry.error is None
        }
        for recipe in plan.recipes
    }
    baseline = entries[plan.baseline]
    return [_line(plan, name, x, baseline) for name, x in entries.items()]


def _line(plan: Plan, recipe: str, entries: Entries, baseline: Entries) -> Line:
    test_sets = {entry.test_set for entry in entries.values()}
    results = _averaged(plan, recipe, entries) if len(test_sets) == 1 else None
    line = Line(
        recipe,
        entries,
        _mean(entry.seconds for entry in entries.values()),
        _mean(entry.images_per_second for entry in entries.values()),
        {k: mean_interval(v) for k, v in _values(entries, entries).items()},
        bootstrap(results) if results and results.per_query else {},
    )
    if not entries or not baseline or recipe == plan.baseline:
        return line
    if test_sets != {entry.test_set for entry in baseline.values()}:
        return dataclasses.replace(line, on_other_images=True)
    shared = [seed for seed in entries if seed in baseline]
    first, second = _values(baseline, shared), _values(entries, shared)
    gains = {
        name: paired_difference(first[name], second[name])
        for name in second
        if name in first
    }
    before = _averaged(plan, plan.baseline, shared)
    after = _averaged(plan, recipe, shared)
    by_query: Mapping[str, Difference] = {}
    if before and after and set(before.per_query) & set(after.per_query):
        by_query = compare(before, after)
    return dataclasses.replace(
        line,
        gains_by_seed=gains,
        gains_by_query=by_query,
        shared_seeds=len(shared),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def _values(entries: Entries, seeds: Iterable[int]) -> dict[str, list[float]]:
    """The values of each metric, by seed."""
    metrics = [entries[seed].metrics or {} for seed in seeds]
    names = metrics[0] if metrics else ()
    return {name: [each[name] for each in metrics] for name in names}


def _averaged(plan: Plan, recipe: str, seeds: Iterable[int]) -> Results | None:
    """Results by query, averaged; None if some were removed since."""
    paths = [plan.folder(recipe, seed) / QUERIES for seed in seeds]
    if not paths or not all(path.exists() for path in paths):
        return None
    return averaged([read_queries(path) for path in paths])


def mean_interval(values: Sequence[float] | FloatArray) -> Interval:
    """The mean of independent values and its 95 % confidence interval.

    mean ± t · s / √n, with s the sample's standard deviation and t the
    quantile of Student's distribution with n − 1 degrees of freedom. The
    ends are NaN for a single value, or if a value is not finite.
    """
    from scipy import stats

    count = len(values)
    mean = float(np.mean(values))
    if count < 2 or not np.isfinite(values).all():
        return Interval(mean, math.nan, math.nan)
    quantile = stats.t.ppf(0.975, count - 1)
    half = float(quantile * stats.sem(values))
    return Interval(mean, mean - half, mean + half)


def paired_difference(
    first: Sequence[float], second: Sequence[float]
) -> PairedDifference:
    """How much greater the second of two paired samples is.

    Pairing by seed takes out what the seed decides for both: the first
    weights and the order of the batches, as far as recipes share them.
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
    return dataclasses.replace(
        first,
        _values={
            name: float(np.mean([r[name] for r in results])) for name in first
        },
        per_query={
            name: np.mean([r.per_query[name] for r in results], axis=0)
            for name in first.per_query
        },
        per_seed={},
    )
