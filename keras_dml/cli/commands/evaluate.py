"""`keras-dml evaluate`."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keras_dml.cli.common import command_body, model_option, print_table

if TYPE_CHECKING:
    from keras_dml.runs import Changes, Measurement


@click.command()
@click.argument("run", type=click.Path(file_okay=False))
@click.argument("other", required=False, type=click.Path(file_okay=False))
@click.option(
    "--split",
    type=click.Choice(["test", "validation", "train"]),
    default="test",
    show_default=True,
    help="Which images to measure on.",
)
@model_option
@click.option(
    "--intervals", is_flag=True, help="One run: add confidence intervals."
)
@click.option(
    "--units",
    type=click.Choice(["queries", "classes"]),
    default="queries",
    show_default=True,
    help="What the bootstrap of intervals and differences draws.",
)
@click.option(
    "--by",
    metavar="METRIC",
    help="Two runs: the metric by which queries got better or worse. "
    "[default: the first run's monitor]",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Two runs: how many of these queries to list.",
)
@click.option(
    "--csv",
    "file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Two runs: write the values of every query.",
)
@command_body
def evaluate(
    run: str,
    other: str | None,
    split: str,
    which: str,
    intervals: bool,
    units: str,
    by: str | None,
    top: int,
    file: str | None,
) -> None:
    """Measure the model in the folder RUN again, to the same digits.

    With OTHER, the folder of another run, compare the two query by query.
    """
    from keras_dml import runs

    if other is None and (by or file):
        raise click.UsageError("--by and --csv compare two runs: give OTHER.")
    first = runs.remeasure(run, split, which)
    if other is None:
        _show(first, split, which, units if intervals else None)
        return
    second = runs.remeasure(other, split, which)
    changes = runs.Changes(first, second, units)
    by = by or _metric(first, changes)
    if by not in changes.comparison:
        raise click.UsageError(
            f"--by must be a retrieval metric that both runs have measured. "
            f"Received: {by!r}. There are: {', '.join(changes.comparison)}."
        )
    click.echo(f"first: {run}\nsecond: {other}")
    _show_differences(changes, f"{first.images!r} of {split} classes", units)
    for title, better in (("better", True), ("worse", False)):
        table = changes.table(by, better, top)
        if len(table) > 1:
            count = changes.counts(by)[0 if better else 1]
            print_table(
                table,
                f"{len(table) - 1} of {count} queries where the second is "
                f"{title} by {by}",
            )
    if file:
        with Path(file).open("w", newline="", encoding="utf-8") as target:
            csv.writer(target).writerows(changes.every_query())
        click.echo(f"Wrote {file}")


def _metric(first: "Measurement", changes: "Changes") -> str:
    monitor = first.recipe.evaluation.monitor
    known = list(changes.comparison)
    return monitor if monitor in known else known[0]


def _show(
    measured: "Measurement", split: str, which: str, units: str | None
) -> None:
    from keras_dml.evaluation import bootstrap
    from keras_dml.runs.benchmark.report import ends

    header = ["metric", which]
    rows = [[name, f"{value:.4f}"] for name, value in measured.results.items()]
    if units:
        header.append(f"95 % interval over {units}")
        found = bootstrap(measured.results, units=units)
        rows = [[*row, ends(found.get(row[0]))] for row in rows]
    print_table(
        [header, *rows],
        f"{measured.recipe.name}: {len(measured.images)} images of {split} "
        "classes",
    )
    _show_definitions(list(measured.results))


def _show_differences(changes: "Changes", title: str, units: str) -> None:
    from keras_dml.runs.benchmark.report import ends, p_value

    header = ["metric", "first", "second", "difference", "95 % interval", "p"]
    shared = [name for name in changes.first if name in changes.second]
    rows = []
    for name in shared:
        before, after = changes.first[name], changes.second[name]
        found = changes.comparison.get(name)
        rows.append(
            [
                name,
                *(f"{before:.4f}", f"{after:.4f}", f"{after - before:+.4f}"),
                ends(found, "+"),
                p_value(found.p_value) if found else "–",
            ]
        )
    print_table([header, *rows], title)
    print_table(
        [
            ["metric", "better", "worse", "equal"],
            *([n, *map(str, changes.counts(n))] for n in changes.comparison),
        ],
        "Queries where the second is",
    )
    click.echo(
        f"Paired bootstrap over {units}, 1000 samples; p is two-sided "
        "(docs/evaluation.md#two-models)."
    )
    _show_definitions(shared)


def _show_definitions(metrics: list[str]) -> None:
    from keras_dml.runs.outcome import definitions

    for line in definitions(metrics):
        click.echo(line)
