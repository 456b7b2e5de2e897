"""The leaderboard of a benchmark: recipes by what they reach, with commands."""

import math
import os
import shlex

from keras_dml.evaluation import Interval
from keras_dml.runs.benchmark.chart import Chart, Measured, svg
from keras_dml.runs.benchmark.comparison import Line
from keras_dml.runs.benchmark.plan import Plan
from keras_dml.runs.outcome import (
    NOTHING,
    ends,
    markdown,
    p_value,
    plus_minus,
)
from keras_dml.utils.files import write_atomically

LEADERBOARD = "leaderboard.md"
CHART = "leaderboard.svg"


def write_leaderboard(plan: Plan, found: list[Line]) -> None:
    """Writes `leaderboard.md` and its chart, once a run has ended.

    Recipes are ordered by the metric by which the baseline chooses its epoch,
    or by the first that was measured; those where it is not a number are left
    out.
    """
    measured = [line for line in found if line.over_seeds]
    if not measured:
        return
    metric = _metric(plan, measured)
    ranked = sorted(
        (
            line
            for line in measured
            if metric in line.over_seeds
            and math.isfinite(line.over_seeds[metric].estimate)
        ),
        key=lambda line: -line.over_seeds[metric].estimate,
    )
    if not ranked:
        return
    write_atomically(plan.output / LEADERBOARD, _page(plan, ranked, metric))
    write_atomically(plan.output / CHART, svg(_chart(plan, ranked, metric)))


def _metric(plan: Plan, measured: list[Line]) -> str:
    names = [recipe.name for recipe in plan.recipes]
    wanted = plan.recipes[names.index(plan.baseline)].evaluation.monitor
    known = list(measured[0].over_seeds)
    return wanted if wanted in known else known[0]


def _page(plan: Plan, ranked: list[Line], metric: str) -> str:
    others = [name for name in ranked[0].over_seeds if name != metric]
    header = [
        "", "recipe", metric, *others, f"− {plan.baseline}", "95 %", "p",
        "training, s",
    ]  # fmt: skip
    rows = [
        [str(place), *_row(line, metric, others)]
        for place, line in enumerate(ranked, 1)
    ]
    alt = "; ".join(
        f"{line.recipe} {line.over_seeds[metric].estimate:.4f}"
        for line in ranked
    )
    return (
        "\n\n".join(
            [
                "# Leaderboard",
                f"![{metric} of each recipe: {alt}]({CHART})",
                markdown([header, *rows]),
                f"Means over {plan.seeds} seeds ± half of the 95 % confidence "
                f"interval; differences from {plan.baseline} are paired by "
                "seed. The other metrics and what the intervals mean: "
                f"[results.md](results.md).{_unfinished(plan, ranked)}",
                "## Commands",
                "Each row is trained with the seeds "
                f"0 to {plan.seeds - 1}; with the first of them:",
                *(_command(plan, line) for line in ranked),
            ]
        )
        + "\n"
    )


def _unfinished(plan: Plan, ranked: list[Line]) -> str:
    """Says which means are over fewer seeds, if any."""
    counts = [
        f"{line.recipe} ({len(line.entries)})"
        for line in ranked
        if len(line.entries) < plan.seeds
    ]
    return f" Over fewer seeds: {', '.join(counts)}." if counts else ""


def _row(line: Line, metric: str, others: list[str]) -> list[str]:
    gain = line.gains_by_seed.get(metric)
    return [
        line.recipe,
        *(plus_minus(line.over_seeds.get(name)) for name in (metric, *others)),
        f"{gain.estimate:+.4f}" if gain else NOTHING,
        ends(gain, "+"),
        p_value(gain.p_value) if gain else NOTHING,
        NOTHING if line.seconds is None else f"{line.seconds:.0f}",
    ]


def _command(plan: Plan, line: Line) -> str:
    names = [recipe.name for recipe in plan.recipes]
    path, *settings = plan.sources[names.index(line.recipe)]
    words = ["keras-dml", "train", path]
    for setting in (*settings, "seed=0"):
        words += ["--set", setting]
    return f"**{line.recipe}**\n\n```console\n$ {shlex.join(words)}\n```"


def _chart(plan: Plan, ranked: list[Line], metric: str) -> Chart:
    shared = _shared_prefix([line.recipe for line in ranked])
    rows = [
        Measured(line.recipe.removeprefix(shared), mean.estimate, *_ends(mean))
        for line in ranked
        for mean in [line.over_seeds[metric]]
    ]
    means = {row.name: row.mean for row in rows}
    zero = means.get(plan.baseline.removeprefix(shared), rows[0].mean)
    return Chart(f"{metric} on test classes, {plan.seeds} seeds", rows, zero)


def _shared_prefix(names: list[str]) -> str:
    """The words that all names begin with, such as the data: "emoji-"."""
    shared = os.path.commonprefix(names) if len(names) > 1 else ""
    return shared[: shared.rfind("-") + 1]


def _ends(mean: Interval) -> tuple[float, float]:
    """Of a single seed, which has no interval, the value itself."""
    known = not math.isnan(mean.low)
    return (mean.low, mean.high) if known else (mean.estimate, mean.estimate)
