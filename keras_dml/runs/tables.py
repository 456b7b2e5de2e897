"""Tables of a benchmark in Markdown, CSV and LaTeX, and its chart.

They compare its recipes, over seeds and over queries.
"""

import csv
import dataclasses
import io
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from keras_dml.evaluation import (
    Difference,
    Interval,
    Results,
    bootstrap,
    compare,
)
from keras_dml.runs.folder import QUERIES, read_queries
from keras_dml.runs.outcome import (
    NOTHING,
    Table,
    definitions,
    format_interval,
    markdown,
    p_value,
    plus_minus,
)
from keras_dml.runs.plan import Entry, Plan
from keras_dml.utils.files import write_atomically
from keras_dml.utils.provenance import CODE
from keras_dml.utils.types import FloatArray
from keras_dml.visualization import canvas

REPORT, VALUES, CHART = "results.md", "results.csv", "results.svg"

_STYLE = (
    "<style>svg{fill:currentColor;color:#1f2328;background:#fff}"
    "@media (prefers-color-scheme:dark)"
    "{svg{color:#e6edf3;background:#1e2129}}</style>"
)


Done: TypeAlias = dict[tuple[str, int], Entry]
Entries: TypeAlias = dict[int, Entry]
"""Runs of one recipe that did not fail, by seed."""


@dataclass(frozen=True)
class PairedDifference(Interval):
    """A mean difference over pairs, and p of the two-sided paired t test.

    p is NaN if all pairs are equal, or if there is only one.
    """

    p_value: float


@dataclass(frozen=True)
class Line:
    """The results of one recipe, and its gains over the baseline.

    Means have intervals over seeds; those of metrics that are means over
    queries also have one over queries. Gains are paired. They are empty for the
    baseline, and where test images are not the baseline's.
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


def write_tables(plan: Plan, done: Done, command: str) -> list[Line]:
    """Writes `results.md`, `.csv`, `.tex`, `.svg`; returns their contents."""
    entries: dict[str, Entries] = {
        recipe.name: {
            seed: entry
            for seed in range(plan.seeds)
            if (entry := done.get((recipe.name, seed))) and entry.error is None
        }
        for recipe in plan.recipes
    }
    baseline = entries[plan.baseline]
    lines = [_line(plan, name, x, baseline) for name, x in entries.items()]
    metric, ranking = rank(plan, lines)
    text = _report(plan, done, lines, metric, ranking, command)
    write_atomically(plan.output / REPORT, text)
    write_atomically(plan.output / VALUES, _csv(plan, lines))
    if ranking:
        table = latex(leaderboard(plan, metric, ranking))
        write_atomically(plan.output / "results.tex", table)
        write_atomically(plan.output / CHART, _chart(plan, ranking, metric))
    return lines


def _line(plan: Plan, recipe: str, entries: Entries, baseline: Entries) -> Line:
    test_sets = {entry.test_set for entry in entries.values()}
    results = _average(plan, recipe, entries) if len(test_sets) == 1 else None
    shared = [seed for seed in entries if seed in baseline]
    is_other = test_sets != {entry.test_set for entry in baseline.values()}
    if recipe == plan.baseline or not (entries and baseline):
        shared, is_other = [], False
    elif is_other:
        shared = []
    first, second = _values(baseline, shared), _values(entries, shared)
    before = _average(plan, plan.baseline, shared)
    after = _average(plan, recipe, shared)
    by_query: Mapping[str, Difference] = {}
    if before and after and set(before.per_query) & set(after.per_query):
        by_query = compare(before, after)
    return Line(
        recipe,
        entries,
        _mean(entry.seconds for entry in entries.values()),
        _mean(entry.images_per_second for entry in entries.values()),
        {k: mean_interval(v) for k, v in _values(entries, entries).items()},
        bootstrap(results) if results and results.per_query else {},
        {
            name: paired_difference(first[name], second[name])
            for name in second
            if name in first
        },
        by_query,
        len(shared),
        is_other,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def _values(entries: Entries, seeds: Iterable[int]) -> dict[str, list[float]]:
    """The values of each metric, by seed."""
    metrics = [entries[seed].metrics or {} for seed in seeds]
    names = metrics[0] if metrics else ()
    return {name: [each[name] for each in metrics] for name in names}


def _average(plan: Plan, recipe: str, seeds: Iterable[int]) -> Results | None:
    """Results averaged over seeds; None if some were removed since."""
    paths = [plan.folder(recipe, seed) / QUERIES for seed in seeds]
    if not paths or not all(path.exists() for path in paths):
        return None
    return average_results([read_queries(path) for path in paths])


def mean_interval(values: Sequence[float] | FloatArray) -> Interval:
    """The mean of independent values and its 95 % interval, by Student's t.

    The ends are NaN for a single value, or if a value is not finite.
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

    Pairing takes out what the seed decides for both, such as first weights.
    """
    from scipy import stats

    with warnings.catch_warnings():
        # For one pair, and differences that are all equal or not finite.
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = mean_interval(np.subtract(second, first))
        p_value = float(stats.ttest_rel(second, first).pvalue)
    return PairedDifference(**vars(interval), p_value=p_value)


def average_results(results: Sequence[Results]) -> Results:
    """Results of several models on the same queries, averaged by query.

    Resampling the queries of the average asks how the mean over these
    models varies with the queries.
    """
    first = results[0]
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


def rank(plan: Plan, lines: list[Line]) -> tuple[str, list[Line]]:
    """Orders recipes by the metric that chooses the baseline's epoch.

    Where that was not measured, it is by the first metric that was. Recipes
    without it are left out.
    """
    (baseline,) = (x for x in plan.recipes if x.name == plan.baseline)
    metric, names = baseline.evaluation.monitor, _metric_names(lines)
    if names and metric not in names:
        metric = names[0]
    ranking = [
        x
        for x in lines
        if metric in x.over_seeds
        and math.isfinite(x.over_seeds[metric].estimate)
    ]
    ranking.sort(key=lambda x: -x.over_seeds[metric].estimate)
    return metric, ranking


def leaderboard(plan: Plan, metric: str, ranking: list[Line]) -> Table:
    """One row for each recipe: the metrics of all, the gain, and the cost."""
    rest = (x for x in _metric_names(ranking) if x != metric)
    shared = [x for x in rest if all(x in y.over_seeds for y in ranking)]
    names = [metric, *shared]
    header = [
        "recipe", "seeds", *names, f"− {plan.baseline}", "95 %", "p",
        "training, s", "images/s",
    ]  # fmt: skip
    rows = [
        [
            line.recipe,
            str(len(line.entries)),
            *(plus_minus(line.over_seeds[name]) for name in names),
            *_difference(line.gains_by_seed.get(metric)),
            *(
                NOTHING if x is None else f"{x:.0f}"
                for x in (line.seconds, line.images_per_second)
            ),
        ]
        for line in ranking
    ]
    return [header, *rows]


def untouched_table(entries: Sequence[Entry]) -> Table:
    """The results of untouched pretrained networks.

    One row for all pooled features as they are, and one for the projection to
    each size that an embedding has, with means over the runs of the metrics
    that all of them have.
    """
    rows: dict[tuple[str, int], list[dict[str, float]]] = {}
    for entry in entries:
        about = entry.untouched or {}
        whole = "untouched network", about["num_features"]
        rows.setdefault(whole, []).append(about["features"])
        size = "PCA or whitening of it", about["dim"]
        rows.setdefault(size, []).append(about["before"])
    if not rows:
        return []
    metrics = [x for all_ in rows.values() for x in all_]
    names = [name for name in metrics[0] if all(name in x for x in metrics)]
    means = [
        [
            what,
            f"{dim:,}",
            *(f"{np.mean([x[y] for x in all_]):.4f}" for y in names),
        ]
        for (what, dim), all_ in sorted(rows.items(), reverse=True)
    ]
    return [["model", "numbers", *names], *means]


def latex(table: Table) -> str:
    """A table in LaTeX, for the package booktabs."""
    replacements = {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$",
        "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "±": r"$\pm$", "−": "$-$", "–": "--", "<": "$<$",
    }  # fmt: skip
    escapes = str.maketrans(replacements)
    rows = [" & ".join(x.translate(escapes) for x in row) for row in table]
    header, *body = (rf"{row} \\" for row in rows)
    columns = "l" + "r" * (len(table[0]) - 1)
    lines = [
        rf"\begin{{tabular}}{{{columns}}}", r"\toprule", header, r"\midrule",
        *body, r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _metric_names(lines: list[Line]) -> list[str]:
    return list(dict.fromkeys(name for x in lines for name in x.over_seeds))


def _difference(gain: Any) -> list[str]:
    """The gain over the baseline, its interval, and the p value."""
    if not gain:
        return [NOTHING] * 3
    return [
        f"{gain.estimate:+.4f}",
        format_interval(gain, "+"),
        p_value(gain.p_value),
    ]


def _report(
    plan: Plan,
    done: Done,
    lines: list[Line],
    metric: str,
    ranking: list[Line],
    command: str,
) -> str:
    environments = [dict(x.environment) for x in done.values() if x.environment]
    versions = {environment.pop(CODE, "") for environment in environments}
    counts = Counter(
        ", ".join(v if k == "hardware" else f"{k} {v}" for k, v in x.items())
        for x in environments
    )
    parts = [f"# Benchmark\n\n```sh\n{command}\n```"]
    parts += [f"On {text} ({count} runs)." for text, count in counts.items()]
    if len(versions) > 1:
        parts.append(
            "The code of keras-dml was changed between runs: "
            f"{len(versions)} versions of it."
        )
    failures = [
        [x.recipe, str(x.seed), " ".join(x.error.split()).replace("|", "\\|")]
        for x in done.values()
        if x.error is not None
    ]
    total, failed = len(plan.runs()), len(failures)
    progress = f"{len(done) - failed} of {total} runs finished"
    progress += f", {failed} failed" if failed else ""
    progress += f", {total - len(done)} remaining" if total > len(done) else ""
    parts.append(f"{progress}.")
    if ranking:
        means = "; ".join(
            f"{x.recipe} {x.over_seeds[metric].estimate:.4f}" for x in ranking
        )
        parts += [
            f"![{metric} of each recipe: {means}]({CHART})",
            markdown(leaderboard(plan, metric, ranking)),
            "Mean ± half of the 95 % confidence interval over the seeds; "
            "training includes the measurement of each epoch and the division "
            f"of the data. `{VALUES}` has intervals and p values of all "
            "metrics.",
        ]
    untouched = untouched_table([x for x in done.values() if x.untouched])
    if untouched:
        parts += ["## Without training", markdown(untouched)]
    strangers = [line.recipe for line in lines if line.on_other_images]
    if strangers:
        parts.append(
            "Not compared, because their test images differ from those of "
            f"{plan.baseline}: {', '.join(strangers)}."
        )
    if failures:
        table = markdown([["recipe", "seed", "message"], *failures])
        parts.append(f"## Failed\n\n{table}")
    names = _metric_names(lines)
    if names:
        metrics = "\n".join(f"- {line}" for line in definitions(names))
        parts.append(_DEFINITIONS.format(metrics, baseline=plan.baseline))
    return "\n\n".join(parts) + "\n"


_DEFINITIONS = """## Definitions

Each run chose its epoch on classes held out of training, and was measured
on the test classes once it was chosen. Metrics:

{}

Intervals are 95 % confidence intervals. Over
seeds: Student's t over the runs; it describes how the mean would vary if all
were trained again. Over queries: percentiles of 1000 bootstrap samples of the
queries, each with its value averaged over the seeds; it describes how the mean
of these same models would vary with other queries. Differences from
{baseline} are paired: by seed (paired t test), and by query (paired
bootstrap). p values are two-sided and not adjusted for the number of
comparisons."""


def _csv(plan: Plan, lines: list[Line]) -> str:
    """One row for each recipe and metric, as CSV."""
    rows = [
        _row(plan, line, name) for line in lines for name in line.over_seeds
    ]
    file = io.StringIO()
    writer = csv.DictWriter(
        file, list(rows[0] if rows else []), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _row(plan: Plan, line: Line, name: str) -> dict[str, Any]:
    by_seed = line.gains_by_seed.get(name)
    by_query = line.gains_by_query.get(name)
    row = {
        "recipe": line.recipe,
        "metric": name,
        "seeds": len(line.entries),
        "mean": line.over_seeds[name].estimate,
        **_ends("seeds", line.over_seeds[name]),
        **_ends("queries", line.over_queries.get(name)),
        "baseline": plan.baseline,
        "shared_seeds": line.shared_seeds,
        "difference": by_seed and by_seed.estimate,
        **_ends("difference_seeds", by_seed),
        "p_seeds": by_seed and by_seed.p_value,
        **_ends("difference_queries", by_query),
        "p_queries": by_query and by_query.p_value,
        "training_seconds": line.seconds,
        "images_per_second": line.images_per_second,
    }
    # NaN, which does not equal itself, is an empty cell.
    return {k: v if v == v else None for k, v in row.items()}


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    low, high = (interval.low, interval.high) if interval else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _chart(plan: Plan, ranking: list[Line], metric: str) -> str:
    """Means and their intervals as an SVG for light and dark pages.

    The dashed line is at the mean of the baseline, or else the best.
    """
    import matplotlib

    title = f"{metric} on test classes, {plan.seeds} seeds"
    recipes = [line.recipe for line in ranking]
    intervals = [line.over_seeds[metric] for line in ranking]
    means = [x.estimate for x in intervals]
    has_baseline = plan.baseline in recipes
    zero = means[recipes.index(plan.baseline) if has_baseline else 0]
    rows = range(len(means))
    figure = canvas.new_figure(
        {}, canvas.WIDTH + 0.08 * max(map(len, recipes)), 1 + 0.32 * len(rows)
    )
    canvas.add_title(figure, title)
    axes = figure.add_subplot()
    axes.axvline(zero, color=canvas.series_style(5).color, linestyle="--")
    axes.errorbar(
        means,
        rows,
        # A single seed has no interval.
        xerr=np.nan_to_num([x.high - x.estimate for x in intervals]),
        fmt="o",
        capsize=4,
        color=canvas.series_style(0).color,
    )
    axes.set_yticks(rows, recipes)
    axes.invert_yaxis()
    values = axes.secondary_yaxis("right")
    values.set_yticks(
        rows, [f"{x:.3f}".replace("-", "−") if x else "0" for x in means]
    )
    for side in (axes, values):
        side.tick_params("y", length=0)
        side.spines[:].set_visible(False)
    axes.grid(axis="x", alpha=0.35)
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Title": title, "Date": None, "Creator": None},
        )
    text = buffer.getvalue().replace("#000000", "currentColor")
    return text.replace("<defs>", f"{_STYLE}\n <defs>", 1)
