"""`keras-dml figures`."""

from pathlib import Path

import click

from keras_dml.cli.common import (
    OutputFolder,
    command_body,
    example,
    say,
)
from keras_dml.cli.json_output import answer, json_option


@click.command(
    epilog=example(
        "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
        "keras-dml figures runs/first",
    )
)
@click.argument("run", type=click.Path(file_okay=False))
@click.argument("others", nargs=-1, type=click.Path(file_okay=False))
@click.option(
    "--output",
    type=OutputFolder(),
    help="Folder of the figures. [default: RUN/figures]",
)
@click.option(
    "--format",
    "suffix",
    type=click.Choice(["png", "svg", "pdf"]),
    default="png",
    help="Format of the figures.",
)
@click.option(
    "--metric",
    default="val_recall@1",
    help="With OTHERS: the column of metrics.csv to compare.",
)
@json_option
@command_body
def figures(
    run: str,
    others: tuple[str, ...],
    output: str | None,
    suffix: str,
    metric: str,
) -> None:
    """Draw the figures of the finished RUN, each with its numbers as CSV.

    With OTHERS, the folders of more runs, also compare a metric over the epochs
    of all of them, for instance for runs with different numbers of learners.
    """
    from keras_dml.reports import Run, comparisons, figures_of

    first = Run(run)
    folder = Path(output) if output else first.folder / "figures"
    drawn = list(figures_of(first))
    if others:
        drawn += comparisons([first, *map(Run, others)], metric)
    written = []
    for figure in drawn:
        path = folder / f"{figure.name}.{suffix}"
        figure.draw().save(path)
        written.append({"file": path, "caption": figure.caption})
        say(f"{path}: {figure.caption}")
    answer({"figures": written})
