"""`keras-dml index`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keras_dml.cli.common import (
    OutputFolder,
    command_body,
    engine_option,
    example,
    model_option,
    print_table,
)
from keras_dml.cli.json_output import answer, json_option

if TYPE_CHECKING:
    from keras_dml.data import Examples
    from keras_dml.recipes import Recipe
    from keras_dml.search import Index

logger = logging.getLogger(__name__)


@click.command(
    epilog=example(
        "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
        "keras-dml index runs/first test --calibrate validation "
        "--output indexes/first",
    )
)
@click.argument("model", metavar="RUN_OR_MODEL", type=click.Path(exists=True))
@click.argument("data", nargs=-1, required=True)
@click.option(
    "--output",
    type=OutputFolder(),
    help="Folder of the index. [default: indexes/NAME-OF-RUN-OR-MODEL]",
)
@click.option("--overwrite", is_flag=True, help="Replace an index.")
@click.option(
    "--key",
    "keys",
    metavar="COLUMN",
    help="Column with unique keys of the rows, such as path or source. "
    "[default: rows are numbered]",
)
@click.option(
    "--metric",
    type=click.Choice(["cosine", "dot", "euclidean"]),
    default="cosine",
    help="Definition of the scores.",
)
@click.option(
    "--factory",
    default="Flat",
    help="Index type, as a faiss factory string: Flat is exact; HNSW32 and "
    "IVF4096,PQ32 are for large galleries.",
)
@click.option(
    "--parameters",
    help="Search parameters: nprobe=32 for IVF, efSearch=64 for HNSW.",
)
@click.option(
    "--thumbnails",
    is_flag=True,
    help="Store a small picture of each file, about 10 kB, for an index that "
    "is copied to another machine without the files.",
)
@click.option(
    "--calibrate",
    "calibration",
    metavar="PATH_OR_SPLIT",
    help="Labeled images for finding the threshold of a match, of 20 classes "
    "and more that the model was not trained on, such as `validation`.",
)
@click.option(
    "--threshold",
    "criterion",
    default="fpir=0.01",
    help="Criterion for the threshold: fpir=0.01, the share of queries whose "
    "class is not in the gallery that get a match; or, of pairs of images: "
    "eer, f1, fpr=0.01.",
)
@engine_option
@model_option
@json_option
@command_body
def index(
    model: str,
    data: tuple[str, ...],
    output: str | None,
    overwrite: bool,
    calibration: str | None,
    criterion: str,
    which: str,
    **kind: Any,
) -> None:
    """Build a searchable index of the images in DATA.

    RUN_OR_MODEL is the folder of a run or a .keras file. DATA are folders of
    images, with or without a folder per class, or splits of the run's data:
    train, validation or test; or tables and lists, as for `keras-dml embed`.
    Write ./test for a folder with that name.
    """
    from keras_dml.cli import sources
    from keras_dml.data import ImageSet
    from keras_dml.evaluation.identification import parse_rate
    from keras_dml.search import Index

    # All of this before images are embedded.
    parse_rate(criterion)
    target = Path(output or Path("indexes") / Path(model).resolve().stem)
    if not overwrite and (target / "index.json").exists():
        raise FileExistsError(
            f"There is already an index in {target}. Use --overwrite to "
            "replace it, or another --output."
        )
    network, recipe = sources.read_model(model, which)
    images = sources.read_images(data, recipe)
    unseen = _calibrating(calibration, recipe)
    is_in_no_file = isinstance(images, ImageSet) and images.paths is None
    kind["thumbnails"] |= is_in_no_file
    built = Index.build(network, images, **kind)
    if unseen is not None:
        built.calibrate(unseen, criterion=criterion)
    built.save(target, overwrite=overwrite)
    answer({"index": target, **_document(built)})
    print_table([["", ""], *_rows(built)], f"Index in {target}")


def _calibrating(
    source: str | None, recipe: "Recipe | None"
) -> "Examples | None":
    """The labeled images of `--calibrate`; None where they are too few.

    A folder of a dozen classes holds out two. Of so few, not even an interval
    can be told, and strangers are called matches many times as often as asked.
    An index without a threshold is then better than none.
    """
    from keras_dml.cli import sources
    from keras_dml.evaluation.confidence import FEWEST_CLASSES

    if source is None:
        return None
    images = sources.read_images([source], recipe)
    if images.labels is None:
        raise ValueError(
            "--calibrate must be images with a class each. Received: "
            f"{source}, without classes. Use a folder with a folder for each."
        )
    if (count := images.num_classes) < FEWEST_CLASSES:
        logger.warning(
            "The index gets no threshold: --calibrate must hold at least %d "
            "classes, better 20. Received: %s, with %d. Searches show scores "
            "without saying which are matches.",
            FEWEST_CLASSES,
            source,
            count,
        )
        return None
    return images


def _document(built: "Index") -> dict[str, Any]:
    names = ("dim", "factory", "parameters", "metric", "recall", "threshold")
    return {
        "images": len(built),
        **{name: getattr(built, name) for name in names},
    }


def _rows(built: "Index") -> list[list[str]]:
    rows = [["images", f"{len(built):,}"], ["dimensions", str(built.dim)]]
    rows.append(["kind", f"{built.factory} {built.parameters}".strip()])
    rows.append(["scores", built.metric])
    if built.recall is not None:
        rows += [
            [f"recall@{k} of exact search", f"{value:.4f}"]
            for k, value in built.recall.at.items()
        ]
    if built.threshold is not None:
        rows.append(["threshold", str(built.threshold)])
    return rows
