"""Comparison: what the runs of a benchmark say together."""

from collections.abc import Sequence
from dataclasses import dataclass, field

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

Done = dict[tuple[str, int], Entry]


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
    entries: dict[int, Entry]
    seconds: float | None = None
    images_per_second: float | None = None
    measured: dict[str, Measured] = field(default_factory=dict)
    gains: dict[str, Gain] = field(default_factory=dict)
    shared_seeds: int = 0
    on_other_images: bool = False


def lines(plan: Plan, done: Done) -> list[Line]:
    """A line for each recipe of a plan, in its order."""
    baseline = _entries(plan, done, plan.baseline)
    return [
        _line(plan, _entries(plan, done, recipe.name), recipe.name, baseline)
        for recipe in plan.recipes
    ]


def _entries(plan: Plan, done: Done, recipe: str) -> dict[int, Entry]:
    return {
        seed: entry
        for seed in range(plan.seeds)
        if (entry := done.get((recipe, seed))) and entry.error is None
    }


def _line(
    plan: Plan,
    entries: dict[int, Entry],
    recipe: str,
    baseline: dict[int, Entry],
) -> Line:
    if not entries:
        return Line(recipe, entries)
    shared = [seed for seed in entries if seed in baseline]
    same = _test_sets(entries) == _test_sets(baseline)
    compared = recipe != plan.baseline and same and shared
    return Line(
        recipe,
        entries,
        _mean([entry.seconds for entry in entries.values()]),
        _mean([entry.images_per_second for entry in entries.values()]),
        _measured(plan, recipe, entries),
        _gains(plan, recipe, entries, baseline, shared) if compared else {},
        len(shared),
        bool(baseline) and not same,
    )


def _test_sets(entries: dict[int, Entry]) -> set[str | None]:
    return {entry.test_set for entry in entries.values()}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean_interval(known).estimate if known else None


def _measured(
    plan: Plan, recipe: str, entries: dict[int, Entry]
) -> dict[str, Measured]:
    over_queries: dict[str, Interval] = {}
    if len(_test_sets(entries)) == 1:
        results = _averaged(plan, recipe, list(entries))
        if results and results.per_query:
            over_queries = bootstrap(results)
    return {
        name: Measured(
            mean_interval([metrics[name] for metrics in _metrics(entries)]),
            over_queries.get(name),
        )
        for name in _metrics(entries)[0]
    }


def _gains(
    plan: Plan,
    recipe: str,
    entries: dict[int, Entry],
    baseline: dict[int, Entry],
    shared: list[int],
) -> dict[str, Gain]:
    first = _averaged(plan, plan.baseline, shared)
    second = _averaged(plan, recipe, shared)
    over_queries: dict[str, Difference] = {}
    if first and second and set(first.per_query) & set(second.per_query):
        over_queries = compare(first, second)
    mine = _metrics({seed: entries[seed] for seed in shared})
    theirs = _metrics({seed: baseline[seed] for seed in shared})
    return {
        name: Gain(
            paired_difference(
                [metrics[name] for metrics in theirs],
                [metrics[name] for metrics in mine],
            ),
            over_queries.get(name),
        )
        for name in mine[0]
        if name in theirs[0]
    }


def _metrics(entries: dict[int, Entry]) -> list[dict[str, float]]:
    return [entry.metrics or {} for entry in entries.values()]


def _averaged(plan: Plan, recipe: str, seeds: Sequence[int]) -> Results | None:
    """Results by query, averaged; None if some were removed since."""
    folders = {run.key: run.folder for run in plan.runs()}
    paths = [folders[recipe, seed] / QUERIES for seed in seeds]
    if not all(path.exists() for path in paths):
        return None
    return averaged([read_queries(path) for path in paths])
