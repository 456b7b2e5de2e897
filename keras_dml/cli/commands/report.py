"""`keras-dml report`, and `keras-dml figures`, which it shows."""

from pathlib import Path

import click

from keras_dml.cli import common


@common.command(
    "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
    "keras-dml report runs/first --queries 10",
)
@click.argument("run", type=click.Path(file_okay=False))
@click.option(
    "--output",
    type=click.Path(dir_okay=False),
    help="The page. [default: RUN/report.html]",
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    default=60,
    help="Maximum number of test images that can be explored.",
)
@common.trust_option
@common.command_body
def report(run: str, output: str | None, queries: int) -> None:
    """Write the report of the finished RUN as one page for a browser."""
    from keras_dml.reports import report as write

    path = write(run, output, queries)
    size = path.stat().st_size
    common.answer({"page": path, "bytes": size})
    common.say(f"Wrote {path} ({size / 1e6:.1f} MB)")
    common.suggest("keras-dml", "index", run, "test", "--calibrate", "test")


@common.command(
    "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
    "keras-dml figures runs/first",
)
@click.argument("run", type=click.Path(file_okay=False))
@click.argument("other_runs", nargs=-1, type=click.Path(file_okay=False))
@common.output_option("Folder of the figures. [default: RUN/figures]")
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
    help="With OTHER_RUNS: the column of metrics.csv to compare.",
)
@common.trust_option
@common.command_body
def figures(
    run: str,
    other_runs: tuple[str, ...],
    output: str | None,
    suffix: str,
    metric: str,
) -> None:
    """Draw the figures of the finished RUN, each with its numbers as CSV.

    With OTHER_RUNS, also compare a metric over the epochs of all, for instance
    for different numbers of learners.
    """
    from keras_dml.reports import Run, comparisons, figures_of

    first = Run(run)
    folder = Path(output) if output else first.folder / "figures"
    run_figures = list(figures_of(first))
    if other_runs:
        run_figures += comparisons([first, *map(Run, other_runs)], metric)
    written = []
    for figure in run_figures:
        path = folder / f"{figure.name}.{suffix}"
        figure.draw().save(path)
        written.append({"file": path, "caption": figure.caption})
        common.say(f"{path}: {figure.caption}")
    common.answer({"figures": written})
