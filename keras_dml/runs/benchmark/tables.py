"""The tables of a benchmark in Markdown, CSV and LaTeX, and its chart."""

import csv
import io
import math
from collections import Counter
from typing import Any

import numpy as np

from keras_dml.evaluation import Interval
from keras_dml.runs.benchmark.comparison import Done, Line, compare_runs
from keras_dml.runs.benchmark.plan import Plan
from keras_dml.runs.outcome import (
    NOTHING,
    Table,
    definitions,
    ends,
    markdown,
    p_value,
    plus_minus,
)
from keras_dml.utils.files import write_atomically
from keras_dml.utils.provenance import CODE
from keras_dml.visualization import canvas

REPORT, VALUES, CHART = "results.md", "results.csv", "results.svg"

_STYLE = (
    "<style>svg{fill:currentColor;color:#1f2328;background:#fff}"
    "@media (prefers-color-scheme:dark)"
    "{svg{color:#e6edf3;background:#1e2129}}</style>"
)


def write_tables(plan: Plan, done: Done, command: str) -> list[Line]:
    """Writes `results.md`, `.csv`, `.tex` and `.svg` into the plan's folder.

    Returns:
        The results of each recipe, in the order of the plan.
    """
    lines = compare_runs(plan, done)
    metric, ranking = rank(plan, lines)
    text = _report(plan, done, lines, metric, ranking, command)
    write_atomically(plan.output / REPORT, text)
    write_atomically(plan.output / VALUES, _values(plan, lines))
    if ranking:
        table = latex(leaderboard(plan, metric, ranking))
        write_atomically(plan.output / "results.tex", table)
        write_atomically(plan.output / CHART, _chart(plan, ranking, metric))
    return lines


def rank(plan: Plan, lines: list[Line]) -> tuple[str, list[Line]]:
    """Orders recipes by the metric that chooses the baseline's epoch.

    Returns:
        The metric, or the first that was measured where that one was not; and
        the recipes that have it.
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
    others = (x for x in _metric_names(ranking) if x != metric)
    shared = [x for x in others if all(x in y.over_seeds for y in ranking)]
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
    """How much more than the baseline, the interval, and the p value."""
    if not gain:
        return [NOTHING] * 3
    return [f"{gain.estimate:+.4f}", ends(gain, "+"), p_value(gain.p_value)]


def _report(
    plan: Plan,
    done: Done,
    lines: list[Line],
    metric: str,
    ranking: list[Line],
    command: str,
) -> str:
    names = _metric_names(lines)
    parts = [
        f"# Benchmark\n\n```console\n$ {command}\n```",
        *_environments(done),
        _progress(plan, done),
    ]
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
    strangers = [line.recipe for line in lines if line.on_other_images]
    if strangers:
        parts.append(
            "Not compared, because their test images differ from those of "
            f"{plan.baseline}: {', '.join(strangers)}."
        )
    failures = [
        [x.recipe, str(x.seed), " ".join(x.error.split()).replace("|", "\\|")]
        for x in done.values()
        if x.error is not None
    ]
    if failures:
        table = markdown([["recipe", "seed", "message"], *failures])
        parts.append(f"## Failed\n\n{table}")
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


def _environments(done: Done) -> list[str]:
    environments = [dict(x.environment) for x in done.values() if x.environment]
    versions = {environment.pop(CODE, "") for environment in environments}
    counts = Counter(
        ", ".join(v if k == "hardware" else f"{k} {v}" for k, v in x.items())
        for x in environments
    )
    parts = [f"On {text} ({count} runs)." for text, count in counts.items()]
    if len(versions) > 1:
        parts.append(
            "The code of keras-dml was changed between runs: "
            f"{len(versions)} versions of it."
        )
    return parts


def _progress(plan: Plan, done: Done) -> str:
    failed = sum(entry.error is not None for entry in done.values())
    total = len(plan.runs())
    text = f"{len(done) - failed} of {total} runs finished"
    text += f", {failed} failed" if failed else ""
    text += f", {total - len(done)} remaining" if total > len(done) else ""
    return text + "."


def _values(plan: Plan, lines: list[Line]) -> str:
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
    canvas.head(figure, title)
    axes = figure.add_subplot()
    axes.axvline(zero, color=canvas.look(5).color, linestyle="--")
    axes.errorbar(
        means,
        rows,
        # A single seed has no interval.
        xerr=np.nan_to_num([x.high - x.estimate for x in intervals]),
        fmt="o",
        capsize=4,
        color=canvas.look(0).color,
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
