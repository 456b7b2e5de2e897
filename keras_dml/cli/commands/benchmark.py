"""`keras-dml benchmark`."""

import shlex
import sys
from typing import TYPE_CHECKING

import click

from keras_dml.cli.common import (
    INTERRUPTED,
    OutputFolder,
    command_body,
    example,
    print_table,
    recipe_names,
    save_every_option,
    say,
    setting_option,
)
from keras_dml.cli.json_output import answer, json_option

if TYPE_CHECKING:
    from keras_dml.runs.benchmark import Plan


@click.command(
    epilog=example(
        "keras-dml benchmark glyphs/baseline glyphs/dcml --seeds 2 "
        "--output runs/two",
    )
)
@click.argument("recipes", nargs=-1, required=True, shell_complete=recipe_names)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=3,
    help="Number of seeds; each recipe is trained with the seeds 0, 1, ….",
)
@click.option(
    "--output",
    type=OutputFolder(),
    required=True,
    help="Folder of the benchmark. An unfinished benchmark is continued.",
)
@setting_option
@click.option(
    "--baseline",
    metavar="NAME",
    help="Name of the recipe to compare with. [default: the first]",
)
@click.option(
    "--metrics",
    metavar="NAME,NAME",
    help="Metrics to measure instead of those of each recipe.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    help="Runs that are trained at the same time; they share the CPU cores.",
)
@click.option("--retry", is_flag=True, help="Repeat failed runs.")
@save_every_option
@json_option
@command_body
def benchmark(
    recipes: tuple[str, ...],
    seeds: int,
    output: str,
    settings: tuple[str, ...],
    baseline: str | None,
    metrics: str | None,
    jobs: int,
    retry: bool,
    save_every: str | None,
) -> None:
    """Train each of RECIPES with several seeds and compare them.

    RECIPE::KEY.KEY=VALUE::KEY=VALUE changes the settings of a single recipe,
    including its `name`, which must differ between recipes.
    The same command continues an interrupted benchmark.
    """
    from keras_dml.runs import benchmark as benchmarks
    from keras_dml.runs.benchmark.report import REPORT, overview, shared_metrics

    shared = (*settings, *metrics_setting(metrics))
    plan = benchmarks.read_plan(
        recipes, seeds, output, shared, baseline, save_every
    )
    command = _command(recipes, plan, settings, metrics)
    try:
        entries, found = benchmarks.benchmark(
            plan, command, jobs=jobs, retry=retry, echo=say
        )
    except KeyboardInterrupt:
        say(
            "Interrupted. Run the same command to continue. Results so far: "
            f"{plan.output / REPORT}"
        )
        sys.exit(INTERRUPTED)
    answer(
        {
            "report": plan.output / REPORT,
            "baseline": plan.baseline,
            "runs": entries,
            "recipes": [
                {
                    "recipe": line.recipe,
                    "over_seeds": line.over_seeds,
                    "over_queries": line.over_queries,
                    "gains_by_seed": line.gains_by_seed,
                    "gains_by_query": line.gains_by_query,
                }
                for line in found
            ],
        }
    )
    # One recipe alone may have many more, as of shorter embeddings.
    table = overview(plan, found, shared_metrics(found))
    print_table(
        # Without the costs, and with intervals below their means.
        [[x.replace(" ±", "\n±") for x in row[:-2]] for row in table],
        f"Mean ± half of the 95 % confidence interval over {seeds} seeds",
    )
    say(f"Differences, intervals, definitions: {plan.output / REPORT}")
    failed = sum(entry.error is not None for entry in entries)
    if failed:
        say(
            f"{failed} of {len(entries)} runs failed; that file has their "
            "messages. Use --retry to repeat them."
        )
        sys.exit(1)


def metrics_setting(metrics: str | None) -> list[str]:
    """The setting of recipes that `--metrics` stands for, if it is given."""
    if metrics is None:
        return []
    from keras_dml.evaluation.metrics import expanded

    names = [name.strip() for name in metrics.split(",")]
    known = [metric.name for metric in expanded(names, (), "benchmark")]
    return [f"evaluation.metrics=[{', '.join(known)}]"]


def _command(
    recipes: tuple[str, ...],
    plan: "Plan",
    settings: tuple[str, ...],
    metrics: str | None,
) -> str:
    """The command line that does the same."""
    words = ["keras-dml", "benchmark", *recipes]
    words += ["--seeds", str(plan.seeds), "--output", str(plan.output)]
    for setting in settings:
        words += ["--set", setting]
    words += ["--baseline", plan.baseline]
    words += ["--metrics", metrics] if metrics else []
    return shlex.join(words)
