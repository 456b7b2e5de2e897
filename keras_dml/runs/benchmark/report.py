"""The tables of a benchmark, as Markdown and CSV, and its chart."""

import csv
import io
import math
import os
import shlex
from collections import Counter
from typing import Any

import numpy as np

from keras_dml.evaluation import Interval
from keras_dml.runs.benchmark.comparison import Done, Line, lines
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

REPORT = "results.md"
VALUES = "results.csv"
CHART = "results.svg"

_STYLE = (
    "<style>svg{fill:currentColor;color:#1f2328;background:#fff}"
    "@media (prefers-color-scheme:dark)"
    "{svg{color:#e6edf3;background:#1e2129}}</style>"
)

COLUMNS = (
    "recipe", "metric", "seeds", "mean", "seeds_low", "seeds_high",
    "queries_low", "queries_high", "baseline", "shared_seeds",
    "difference", "difference_seeds_low", "difference_seeds_high",
    "p_seeds", "difference_queries_low", "difference_queries_high",
    "p_queries", "training_seconds", "images_per_second",
)  # fmt: skip


def write_report(plan: Plan, done: Done, command: str) -> list[Line]:
    """Writes the tables into the plan's folder: `results.md`, with a chart,
    and `results.csv`.

    Returns:
        A line for each recipe, in the order of the plan.
    """
    found = lines(plan, done)
    metric, ranked = _ranked(plan, found)
    text = _report(plan, done, found, metric, ranked, command)
    write_atomically(plan.output / REPORT, text)
    write_atomically(plan.output / VALUES, _values(plan, found))
    if ranked:
        write_atomically(plan.output / CHART, _chart(plan, ranked, metric))
    return found


def _ranked(plan: Plan, found: list[Line]) -> tuple[str, list[Line]]:
    """The metric that recipes are ordered by, and those that have it.

    It is the one by which the baseline chooses its epoch, or else the first
    that was measured.
    """
    names = [recipe.name for recipe in plan.recipes]
    metric = plan.recipes[names.index(plan.baseline)].evaluation.monitor
    known = _metric_names(found)
    if known and metric not in known:
        metric = known[0]
    means = {
        line.recipe: line.over_seeds[metric].estimate
        for line in found
        if metric in line.over_seeds
    }
    ranked = [x for x in found if math.isfinite(means.get(x.recipe, math.nan))]
    return metric, sorted(ranked, key=lambda x: -means[x.recipe])


def overview(plan: Plan, found: list[Line], names: list[str]) -> Table:
    """One row for each recipe: the named metrics and what it costs."""
    table = [["recipe", "seeds", *names, "training, s", "images/s"]]
    for line in found:
        table.append(
            [
                line.recipe,
                f"{len(line.entries)} of {plan.seeds}",
                *(plus_minus(line.over_seeds.get(name)) for name in names),
                _whole(line.seconds),
                _whole(line.images_per_second),
            ]
        )
    return table


def shared_metrics(found: list[Line]) -> list[str]:
    """The metrics that all recipes have, as far as they have any."""
    measured = [line.over_seeds for line in found if line.over_seeds]
    return [
        name
        for name in _metric_names(found)
        if all(name in metrics for metrics in measured)
    ]


def _metric_names(found: list[Line]) -> list[str]:
    return list(dict.fromkeys(name for x in found for name in x.over_seeds))


def _report(
    plan: Plan,
    done: Done,
    found: list[Line],
    metric: str,
    ranked: list[Line],
    command: str,
) -> str:
    names = _metric_names(found)
    parts = [
        "# Benchmark",
        f"```console\n$ {command}\n```",
        _environments(done),
        _state(plan, done),
        *(_ranking(plan, metric, ranked) if ranked else ()),
        *(_metric_section(plan, found, name) for name in names),
        _failures(done),
        _legend(plan, names) if names else "",
        *(_commands(plan, ranked) if ranked else ()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _ranking(plan: Plan, metric: str, ranked: list[Line]) -> list[str]:
    """The chart, the recipes by what they reach, and what that means."""
    names = dict.fromkeys([metric, *ranked[0].over_seeds])
    header = [
        "", "recipe", *names, f"− {plan.baseline}", "95 %", "p", "training, s"
    ]  # fmt: skip
    rows = [
        [
            str(place),
            line.recipe,
            *(plus_minus(line.over_seeds.get(name)) for name in names),
            *_difference(line.gains_by_seed.get(metric)),
            _whole(line.seconds),
        ]
        for place, line in enumerate(ranked, 1)
    ]
    means = "; ".join(
        f"{line.recipe} {line.over_seeds[metric].estimate:.4f}"
        for line in ranked
    )
    fewer = [
        f"{line.recipe} ({len(line.entries)})"
        for line in ranked
        if len(line.entries) < plan.seeds
    ]
    note = f" Over fewer seeds: {', '.join(fewer)}." if fewer else ""
    return [
        f"![{metric} of each recipe: {means}]({CHART})",
        markdown([header, *rows]),
        f"Mean over {plan.seeds} seeds ± half of the 95 % confidence interval "
        f"of Student's t; differences from {plan.baseline} are paired by seed. "
        "Training includes the measurement of each epoch and the division of "
        f"the data.{note}",
    ]


def _whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0f}"


def _difference(gain: Any) -> list[str]:
    """How much more than the baseline, the interval, and the p value."""
    if not gain:
        return [NOTHING] * 3
    return [f"{gain.estimate:+.4f}", ends(gain, "+"), p_value(gain.p_value)]


def _commands(plan: Plan, ranked: list[Line]) -> list[str]:
    names = [recipe.name for recipe in plan.recipes]
    found = [
        "## Commands",
        "Each row is trained with the seeds "
        f"0 to {plan.seeds - 1}; with the first of them:",
    ]
    for line in ranked:
        path, *settings = plan.sources[names.index(line.recipe)]
        words = ["keras-dml", "train", path]
        for setting in (*settings, "seed=0"):
            words += ["--set", setting]
        command = f"```console\n$ {shlex.join(words)}\n```"
        found.append(f"**{line.recipe}**\n\n{command}")
    return found


def _chart(plan: Plan, ranked: list[Line], metric: str) -> str:
    """Means and their intervals as an SVG for light and dark pages.

    The dashed line is at the mean of the baseline, or else the best.
    """
    import matplotlib

    title = f"{metric} on test classes, {plan.seeds} seeds"
    shared = _shared_prefix([line.recipe for line in ranked])
    names = [x.recipe.removeprefix(shared).replace("-", " ") for x in ranked]
    found = {line.recipe: line.over_seeds[metric] for line in ranked}
    means = [x.estimate for x in found.values()]
    zero = found[plan.baseline].estimate if plan.baseline in found else means[0]
    lengths = [
        [x.estimate - x.low for x in found.values()],
        [x.high - x.estimate for x in found.values()],
    ]
    rows = range(len(found))
    figure = canvas.new_figure(
        {}, canvas.WIDTH + 0.08 * max(map(len, names)), 1 + 0.32 * len(rows)
    )
    canvas.head(figure, title)
    axes = figure.add_subplot()
    axes.axvline(zero, color=canvas.look(5).color, linestyle="--")
    axes.errorbar(
        means,
        rows,
        xerr=np.nan_to_num(lengths),  # Of a single seed there are none.
        fmt="o",
        capsize=4,
        color=canvas.look(0).color,
    )
    axes.set_yticks(rows, names)
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


def _shared_prefix(names: list[str]) -> str:
    """The words that all names begin with, such as the data: "emoji-"."""
    shared = os.path.commonprefix(names) if len(names) > 1 else ""
    return shared[: shared.rfind("-") + 1]


def _environments(done: Done) -> str:
    known = [dict(e.environment) for e in done.values() if e.environment]
    codes = {environment.pop(CODE, "") for environment in known}
    counts = Counter(
        ", ".join(v if k == "hardware" else f"{k} {v}" for k, v in e.items())
        for e in known
    )
    lines = [f"On {text} ({count} runs)." for text, count in counts.items()]
    if len(codes) > 1:
        lines.append(
            "The code of keras-dml was changed between runs: "
            f"{len(codes)} versions of it."
        )
    return "\n\n".join(lines)


def _state(plan: Plan, done: Done) -> str:
    failed = sum(entry.error is not None for entry in done.values())
    wanted = len(plan.runs())
    text = f"{len(done) - failed} of {wanted} runs finished"
    text += f", {failed} failed" if failed else ""
    text += f", {wanted - len(done)} remaining" if wanted > len(done) else ""
    return text + "."


def _metric_section(plan: Plan, found: list[Line], name: str) -> str:
    header = [
        "recipe", "mean", "over seeds", "over queries",
        f"− {plan.baseline}", "over seeds", "p", "over queries", "p",
    ]  # fmt: skip
    rows = [
        [
            line.recipe,
            f"{line.over_seeds[name].estimate:.4f}",
            ends(line.over_seeds[name]),
            ends(line.over_queries.get(name)),
            *_difference(line.gains_by_seed.get(name)),
            *_difference(line.gains_by_query.get(name))[1:],
        ]
        for line in found
        if name in line.over_seeds
    ]
    parts = [f"## {name}", markdown([header, *rows])]
    others = [line.recipe for line in found if line.on_other_images]
    if others:
        parts.append(
            "Not compared, because their test images differ from those of "
            f"{plan.baseline}: {', '.join(others)}."
        )
    return "\n\n".join(parts)


def _failures(done: Done) -> str:
    rows = [
        [entry.recipe, str(entry.seed), " ".join(entry.error.split())]
        for entry in done.values()
        if entry.error is not None
    ]
    if not rows:
        return ""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    table = markdown([["recipe", "seed", "message"], *rows])
    return f"## Failed\n\n{table}"


def _legend(plan: Plan, names: list[str]) -> str:
    metrics = "\n".join(f"- {line}" for line in definitions(names))
    return f"""## Definitions

Each run chose its epoch on classes held out of training, and was measured
on the test classes once it was chosen. Metrics:

{metrics}

Intervals are 95 % confidence intervals. Over
seeds: Student's t over the runs; it describes how the mean would vary if all
were trained again. Over queries: percentiles of 1000 bootstrap samples of the
queries, each with its value averaged over the seeds; it describes how the mean
of these same models would vary with other queries. Differences from
{plan.baseline} are paired: by seed (paired t test), and by query (paired
bootstrap). p values are two-sided and not adjusted for the number of
comparisons."""


def _values(plan: Plan, found: list[Line]) -> str:
    """One row for each recipe and metric, as CSV."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for line in found:
        for name in line.over_seeds:
            row = _csv_row(plan, line, name)
            # NaN, which is nothing's equal, is an empty cell.
            writer.writerow({k: v for k, v in row.items() if v == v})
    return file.getvalue()


def _csv_row(plan: Plan, line: Line, name: str) -> dict[str, Any]:
    mean = line.over_seeds[name]
    by_seed = line.gains_by_seed.get(name)
    by_query = line.gains_by_query.get(name)
    return {
        "recipe": line.recipe,
        "metric": name,
        "seeds": len(line.entries),
        "mean": mean.estimate,
        **_csv_ends("seeds", mean),
        **_csv_ends("queries", line.over_queries.get(name)),
        "baseline": plan.baseline,
        "shared_seeds": line.shared_seeds,
        "difference": by_seed and by_seed.estimate,
        **_csv_ends("difference_seeds", by_seed),
        "p_seeds": by_seed and by_seed.p_value,
        **_csv_ends("difference_queries", by_query),
        "p_queries": by_query and by_query.p_value,
        "training_seconds": line.seconds,
        "images_per_second": line.images_per_second,
    }


def _csv_ends(name: str, interval: Interval | None) -> dict[str, float]:
    if interval is None:
        return {}
    return {f"{name}_low": interval.low, f"{name}_high": interval.high}
