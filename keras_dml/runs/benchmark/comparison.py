"""Comparison: what the runs of a benchmark say together."""

from collections.abc import Iterable
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
from keras_dml.runs.benchmark.journal import Entry
from keras_dml.runs.benchmark.plan import Plan
from keras_dml.runs.benchmark.statistics import (
    PairedDifference,
    averaged,
    mean_interval,
    paired_difference,
)
from keras_dml.runs.folder import QUERIES, read_queries

Done: TypeAlias = dict[tuple[str, int], Entry]
Entries: TypeAlias = dict[int, Entry]
"""Runs of one recipe that did not fail, by seed."""


@dataclass(frozen=True)
class Measured:
    """A metric of a recipe.

    Attributes:
        over_seeds: Mean over the seeds, and its interval.
        over_queries: The same mean, with the interval over queries; None
            for a metric that is not a mean over queries.
    """

    over_seeds: Interval
    over_queries: Interval | None


@dataclass(frozen=True)
class Gain:
    """How much more of a metric a recipe has than the baseline.

    Attributes:
        over_seeds: Paired by seed.
        over_queries: Paired by query; None where there is none.
    """

    over_seeds: PairedDifference
    over_queries: Difference | None


@dataclass(frozen=True)
class Line:
    """All that the runs of one recipe say.

    Attributes:
        recipe: Its name.
        entries: Its runs that did not fail, by seed.
        seconds: Mean duration of a training; None without any.
        images_per_second: Mean speed of the training; None without any.
        measured: By metric.
        gains: Over the baseline, by metric; empty for the baseline and
            where there is nothing to compare.
        shared_seeds: Number of seeds that it has in common with the
            baseline.
        on_other_images: Whether its test images are not the baseline's.
    """

    recipe: str
    entries: Entries
    seconds: float | None = None
    images_per_second: float | None = None
    measured: dict[str, Measured] = field(default_factory=dict)
    gains: dict[str, Gain] = field(default_factory=dict)
    shared_seeds: int = 0
    on_other_images: bool = False


def lines(plan: Plan, done: Done) -> list[Line]:
    """A line for each recipe of a plan, in its order."""
    entries: dict[str, Entries] = {
        recipe.name: {
            seed: entry
            for seed in range(plan.seeds)
            if (entry := done.get((recipe.name, seed))) and entry.error is None
        }
        for recipe in plan.recipes
    }
    baseline = entries[plan.baseline]
    return [_line(plan, name, own, baseline) for name, own in entries.items()]


def _line(plan: Plan, recipe: str, entries: Entries, baseline: Entries) -> Line:
    if not entries:
        return Line(recipe, entries)
    shared = [seed for seed in entries if seed in baseline]
    same = _test_sets(entries) == _test_sets(baseline)
    gains: dict[str, Gain] = {}
    if recipe != plan.baseline and same and shared:
        gains = _gains(plan, recipe, entries, baseline, shared)
    return Line(
        recipe,
        entries,
        _mean(entry.seconds for entry in entries.values()),
        _mean(entry.images_per_second for entry in entries.values()),
        _measured(plan, recipe, entries),
        gains,
        len(shared),
        bool(baseline) and not same,
    )


def _test_sets(entries: Entries) -> set[str | None]:
    return {entry.test_set for entry in entries.values()}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _measured(plan: Plan, recipe: str, entries: Entries) -> dict[str, Measured]:
    over_queries: dict[str, Interval] = {}
    if len(_test_sets(entries)) == 1:
        results = _averaged(plan, recipe, entries)
        if results and results.per_query:
            over_queries = bootstrap(results)
    metrics = _metrics(entries, entries)
    return {
        name: Measured(
            mean_interval([each[name] for each in metrics]),
            over_queries.get(name),
        )
        for name in metrics[0]
    }


def _gains(
    plan: Plan,
    recipe: str,
    entries: Entries,
    baseline: Entries,
    shared: list[int],
) -> dict[str, Gain]:
    first = _averaged(plan, plan.baseline, shared)
    second = _averaged(plan, recipe, shared)
    over_queries: dict[str, Difference] = {}
    if first and second and set(first.per_query) & set(second.per_query):
        over_queries = compare(first, second)
    mine, theirs = _metrics(entries, shared), _metrics(baseline, shared)
    return {
        name: Gain(
            paired_difference(
                [each[name] for each in theirs], [each[name] for each in mine]
            ),
            over_queries.get(name),
        )
        for name in mine[0]
        if name in theirs[0]
    }


def _metrics(entries: Entries, seeds: Iterable[int]) -> list[dict[str, float]]:
    return [entries[seed].metrics or {} for seed in seeds]


def _averaged(plan: Plan, recipe: str, seeds: Iterable[int]) -> Results | None:
    """Results by query, averaged; None if some were removed since."""
    paths = [plan.folder(recipe, seed) / QUERIES for seed in seeds]
    if not all(path.exists() for path in paths):
        return None
    return averaged([read_queries(path) for path in paths])
