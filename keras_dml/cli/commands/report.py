"""`keras-dml report`."""

import click

from keras_dml.cli.common import (
    command_body,
    example,
    say,
)
from keras_dml.cli.json_output import answer, json_option


@click.command(
    epilog=example(
        "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
        "keras-dml report runs/first --queries 10",
    )
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
@json_option
@command_body
def report(run: str, output: str | None, queries: int) -> None:
    """Write the report of the finished RUN as one page for a browser."""
    from keras_dml.reports import report as write

    path = write(run, output, queries)
    size = path.stat().st_size
    answer({"page": path, "bytes": size})
    say(f"Wrote {path} ({size / 1e6:.1f} MB)")
