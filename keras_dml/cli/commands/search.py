"""`keras-dml search`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from keras_dml.cli.common import command_body, print_table

if TYPE_CHECKING:
    from keras_dml.search import Hit


@click.command()
@click.argument(
    "images",
    metavar="IMAGE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False),
)
@click.option(
    "--index",
    "folder",
    required=True,
    type=click.Path(file_okay=False),
    help="The folder of the index.",
)
@click.option(
    "-k",
    type=click.IntRange(min=1),
    default=10,
    help="How many images to find.",
)
@click.option(
    "--threshold",
    type=float,
    help="The score from which it is a match. [default: the calibrated one]",
)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Search only where a column has this value; may be repeated.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, writable=True),
    help="Also write a page with the images found.",
)
@command_body
def search(
    images: tuple[str, ...],
    folder: str,
    k: int,
    threshold: float | None,
    conditions: tuple[str, ...],
    page: str | None,
) -> None:
    """Find the images of an index that are most like each IMAGE."""
    from keras_dml.reports.search_page import results_page
    from keras_dml.search import Index

    index = Index.load(folder)
    hits = index.search(
        list(images), k, threshold=threshold, where=_where(conditions) or None
    )
    for path, found in zip(images, hits, strict=True):
        rows = [_row(rank, hit) for rank, hit in enumerate(found, 1)]
        header = ["", "score", "match", "class", "row", "file"]
        print_table([header, *rows], _title(path, found, hits.threshold))
    if page is not None:
        Path(page).write_text(results_page(images, hits), encoding="utf-8")
        click.echo(f"Page written to {page}")


def _where(conditions: tuple[str, ...]) -> dict[str, list[object]]:
    where: dict[str, list[object]] = {}
    for condition in conditions:
        column, equals, value = condition.partition("=")
        if not (column and equals):
            raise ValueError(
                "--where must be written column=value. Received: "
                f"{condition!r}. For instance name=crow."
            )
        # What is written as a number may be text in the column.
        where.setdefault(column, []).append(value)
        if value.lstrip("-").isdecimal():
            where[column].append(int(value))
    return where


def _title(path: str, found: "list[Hit]", threshold: float | None) -> str:
    if threshold is None:
        return path
    if found and found[0].is_match:
        return f"{path}: match"
    return f"{path}: no match, as nothing reaches {threshold:.4f}"


def _row(rank: int, hit: "Hit") -> list[str]:
    from rich.markup import escape

    from keras_dml.reports.search_page import caption

    match = {True: "yes", False: "no", None: ""}[hit.is_match]
    texts = [str(rank), f"{hit.score:.4f}", match, caption(hit.row)]
    texts += [str(hit.id), hit.row.get("path") or ""]
    return [escape(text) for text in texts]
