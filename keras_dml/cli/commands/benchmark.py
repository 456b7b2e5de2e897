"""`keras-dml benchmark`."""

import shlex
import sys

import click

from keras_dml.cli import common


@common.command(
    "keras-dml benchmark glyphs/baseline glyphs/dcml --seeds 2 "
    "--output runs/two"
)
@click.argument(
    "recipes", nargs=-1, required=True, shell_complete=common.recipe_names
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=3,
    help="Number of seeds; each recipe is trained with the seeds 0, 1, ….",
)
@common.output_option(
    "Folder of the benchmark. An unfinished benchmark is continued.",
    required=True,
)
@common.setting_option
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
@common.save_every_option
@common.command_body
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
    from keras_dml.evaluation.metrics import expand_metrics
    from keras_dml.runs import benchmark as benchmarks
    from keras_dml.runs import tables

    settings_of_all = list(settings)
    if metrics is not None:
        texts = [text.strip() for text in metrics.split(",")]
        names = [x.name for x in expand_metrics(texts, (), "benchmark")]
        settings_of_all.append(f"evaluation.metrics=[{', '.join(names)}]")
    plan = benchmarks.read_plan(
        recipes, seeds, output, settings_of_all, baseline, save_every
    )
    words = ["keras-dml", "benchmark", *recipes]
    words += ["--seeds", str(seeds), "--output", output]
    words += [word for x in settings for word in ("--set", x)]
    words += ["--baseline", plan.baseline]
    words += ["--metrics", metrics] if metrics else []
    try:
        entries, lines = benchmarks.benchmark(
            plan, shlex.join(words), jobs=jobs, retry=retry, echo=common.say
        )
    except KeyboardInterrupt:
        common.say(
            "Interrupted. Run the same command to continue. Results so far: "
            f"{plan.output / tables.REPORT}"
        )
        sys.exit(common.INTERRUPTED)
    report = plan.output / tables.REPORT
    common.answer({"report": report, "baseline": plan.baseline, "runs": entries,
            "recipes": lines})  # fmt: skip
    metric, ranking = tables.rank(plan, lines)
    if ranking:
        board = tables.leaderboard(plan, metric, ranking)
        # Intervals are below their means, and costs are left to the report.
        cells = [[x.replace(" ±", "\n±") for x in row[:-2]] for row in board]
        common.print_table(
            cells, f"Mean ± half of the 95 % interval, {seeds} seeds"
        )
    common.say(f"Tables, definitions: {report}")
    failed = sum(entry.error is not None for entry in entries)
    if failed:
        common.say(
            f"{failed} of {len(entries)} runs failed; that file has their "
            "messages. Use --retry to repeat them."
        )
        sys.exit(1)
