"""`keras-dml search`."""

import os
from typing import TYPE_CHECKING

import click

from keras_dml.cli.common import command_body, example, print_table, say
from keras_dml.cli.json_output import answer, json_option

if TYPE_CHECKING:
    from keras_dml.search import Hit


@click.command(
    epilog=example(
        "keras-dml train photographs --output runs/p --set epochs=1",
        "keras-dml index runs/p test --output indexes/p",
        "keras-dml search query.jpg --index indexes/p --where "
        "name=crow --html found.html",
    )
)
@click.argument(
    "images",
    metavar="IMAGE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False),
)
@click.option(
    "--index",
    "place",
    required=True,
    metavar="FOLDER",
    help="Folder of the index.",
)
@click.option(
    "--model-of",
    "source",
    metavar="RUN_OR_MODEL",
    type=click.Path(exists=True),
    help="Run or .keras file with the model that made the index. Needed for "
    "an index that was saved without it.",
)
@click.option(
    "-k",
    type=click.IntRange(min=1),
    default=10,
    help="Number of images to find.",
)
@click.option(
    "--threshold",
    type=float,
    help="Minimum score of a match. [default: the calibrated one]",
)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Search only rows with this value in a column; !=, <, <=, > and >= "
    "work too. May be repeated: a row needs one of the values given by = for "
    "a column, and must meet all other conditions.",
)
@click.option(
    "--all",
    "finds_all",
    is_flag=True,
    help="Find all images that reach the threshold, instead of the -k nearest.",
)
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, writable=True),
    help="Also write a page with the images found.",
)
@json_option
@command_body
def search(
    images: tuple[str, ...],
    place: str,
    source: str | None,
    k: int,
    threshold: float | None,
    conditions: tuple[str, ...],
    finds_all: bool,
    page: str | None,
) -> None:
    """Find the images of an index that are most similar to each IMAGE.

    Each call loads the model, which takes seconds. For many queries, use
    `keras-dml serve`.
    """
    from keras_dml.cli.conditions import read_conditions
    from keras_dml.reports.html import results_page
    from keras_dml.search import Index
    from keras_dml.utils.files import write_atomically

    model = None
    if source is not None:
        from keras_dml.cli import sources

        model, _ = sources.read_model(source, "best")
    index = Index.load(place, model)
    where = read_conditions(conditions, index.columns) or None
    if finds_all:
        hits = index.range_search(list(images), threshold, where=where)
    else:
        hits = index.search(list(images), k, threshold=threshold, where=where)
    queries = [
        {"image": path, "hits": found}
        for path, found in zip(images, hits, strict=True)
    ]
    answer(
        {
            "index": place,
            "metric": hits.metric,
            "threshold": hits.threshold,
            "threshold_meaning": hits.meaning,
            "queries": queries,
        }
    )
    for path, found in zip(images, hits, strict=True):
        rows = [_row(rank, hit) for rank, hit in enumerate(found, 1)]
        header = ["", "score", "match", "class", "key", "file"]
        title = _title(path, found, hits.threshold)
        print_table([header, *rows], title, whole=True)
    if hits.threshold is not None and hits.meaning:
        say(f"The threshold {hits.threshold:.4f} is {hits.meaning}.")
    if page is not None:
        write_atomically(page, results_page(images, hits))
        say(f"Page written to {page}")


def _title(path: str, found: "list[Hit]", threshold: float | None) -> str:
    if threshold is None:
        return path
    if found and found[0].is_match:
        return f"{path}: match"
    return f"{path}: no match, because no score reaches {threshold:.4f}"


def _row(rank: int, hit: "Hit") -> list[str]:
    from keras_dml.reports.html import caption

    match = {True: "yes", False: "no", None: ""}[hit.is_match]
    texts = [str(rank), f"{hit.score:.4f}", match, caption(hit.row)]
    return [*texts, str(hit.key), _shown(str(hit.row.get("path") or ""))]


def _shown(path: str) -> str:
    """A path, relative to the working directory if it is in it."""
    here = f"{os.getcwd()}{os.sep}"
    return path.removeprefix(here)
