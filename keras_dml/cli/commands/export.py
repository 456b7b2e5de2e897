"""`keras-dml export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keras_dml.cli.common import (
    begin_with,
    command_body,
    example,
    model_option,
    on_tensorflow,
    refuse_run,
    say,
)
from keras_dml.cli.json_output import answer, json_option

if TYPE_CHECKING:
    import keras

    from keras_dml.data import Examples
    from keras_dml.recipes import Recipe
    from keras_dml.search import Index

SUFFIXES = {"saved_model": "", "onnx": ".onnx", "litert": ".tflite"}


@click.command(
    epilog=example(
        "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
        "keras-dml export runs/first --gallery test --k 5",
    )
)
@click.argument("run", type=click.Path(file_okay=False))
@click.option(
    "--output",
    type=click.Path(),
    help="Folder of the model, in which the next free version is created; or "
    "the file for other formats. [default: saved_models/NAME-OF-RECIPE, with "
    ".onnx or .tflite]",
)
@model_option
@click.option(
    "--format",
    "file_format",
    type=click.Choice(list(SUFFIXES)),
    default="saved_model",
    help="Format for TensorFlow Serving, ONNX Runtime or LiteRT.",
)
@click.option(
    "--gallery",
    metavar="train|test|PATH",
    help="Gallery for the lookup signatures: a split of the run's data, the "
    "images in PATH/class/image.jpg, or the index that `keras-dml index` made "
    "in PATH.",
)
@click.option(
    "--k",
    type=click.IntRange(min=1),
    default=10,
    help="Number of neighbors returned by lookup; lookup_k takes any number.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(-1, 1),
    help="Minimum cosine for a neighbor to count as above the threshold. "
    "[default: all do]",
)
@click.option(
    "--models-config",
    is_flag=True,
    help="List all models beside this one in models.config.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace an existing ONNX or LiteRT file.",
)
@json_option
@on_tensorflow
@begin_with(refuse_run)
@command_body
def export(
    run: str,
    output: str | None,
    which: str,
    file_format: str,
    gallery: str | None,
    models_config: bool,
    overwrite: bool,
    **options: Any,
) -> None:
    """Export the model in the folder RUN for a server or a device."""
    from keras_dml import runs
    from keras_dml.export import export_model, write_models_config
    from keras_dml.export.portable import check_options
    from keras_dml.utils.progress import waiting

    if models_config and file_format != "saved_model":
        raise click.ClickException(
            "--models-config is for --format saved_model."
        )
    check_options(file_format, gallery, overwrite)
    recipe = runs.load_recipe(run)
    name = f"{recipe.name}{SUFFIXES[file_format]}"
    with waiting("Loading the model"):
        model = runs.load_model(run, which)
    with waiting("Writing the export and comparing it with the model"):
        path = export_model(
            model,
            output or Path("saved_models") / name,
            format=file_format,
            gallery=_gallery(recipe, model, gallery),
            overwrite=overwrite,
            **options,
        )
    say(f"Exported to {path}")
    config = None
    if models_config:
        config = write_models_config(path.absolute().parents[1])
        say(f"Wrote {config}")
    answer({"model": path, "format": file_format, "models_config": config})


def _gallery(
    recipe: "Recipe", model: "keras.Model", gallery: str | None
) -> "Examples | Index | None":
    from keras_dml import data
    from keras_dml.recipes import building
    from keras_dml.search import Index, is_index, open_index

    if gallery is None:
        return None
    if "://" in gallery:
        return open_index(gallery, model)
    if gallery not in ("train", "test"):
        if is_index(gallery):
            return Index.load(gallery, model)
        return data.image_folder(gallery)
    splits = building.splits(recipe)
    if gallery == "train":
        return splits.train
    if splits.gallery_rows is None:
        return splits.test
    return splits.test.select(splits.gallery_rows)
