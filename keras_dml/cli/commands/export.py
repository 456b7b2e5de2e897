"""`keras-dml export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keras_dml.cli import common

if TYPE_CHECKING:
    import keras

    from keras_dml.data import Examples
    from keras_dml.recipes import Recipe
    from keras_dml.search import Index

FORMATS = ("saved_model", "onnx", "litert", "openvino")


@common.command(
    "keras-dml train glyphs/baseline --set epochs=1 --output runs/first",
    "keras-dml export runs/first --gallery test --k 5",
)
@click.argument("run", type=click.Path(file_okay=False))
@click.option(
    "--output",
    type=click.Path(),
    help="Folder of the model, in which the next free version is created; or "
    "the file for other formats. [default: saved_models/NAME-OF-RECIPE, with "
    ".onnx, .tflite or .xml]",
)
@common.model_option
@common.trust_option
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    default="saved_model",
    help="Format for TensorFlow Serving, ONNX Runtime, LiteRT or OpenVINO.",
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
    "--overwrite",
    is_flag=True,
    help="Replace an existing file of the other formats.",
)
@click.option(
    "--quantize",
    type=click.Choice(["int8"]),
    help="For the other formats: compute the network in 8-bit integers, "
    "calibrated on training images, and measure on the held-out classes what "
    "it costs.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1),
    help="With --quantize: write nothing if recall@1 falls by more. "
    "[default: 0.01]",
)
@common.on_tensorflow
@common.command_body
def export(
    run: str,
    output: str | None,
    which: str,
    file_format: str,
    gallery: str | None,
    overwrite: bool,
    quantize: str | None,
    tolerance: float | None,
    **options: Any,
) -> None:
    """Export the model in the folder RUN for a server or a device."""
    from keras_dml import runs
    from keras_dml.embedding.engines import SUFFIXES
    from keras_dml.export import export_model
    from keras_dml.export.portable import check_options
    from keras_dml.utils.progress import waiting

    if quantize and file_format == "saved_model":
        raise click.ClickException(
            "--quantize is for --format onnx, litert and openvino."
        )
    if tolerance is not None and not quantize:
        raise click.ClickException("--tolerance is for --quantize.")
    check_options(file_format, gallery, overwrite, output or "")
    recipe = runs.load_recipe(run)
    name = f"{recipe.name}{SUFFIXES.get(file_format, '')}"
    path = Path(output or Path("saved_models") / name)
    with waiting("Loading the model"):
        model = runs.load_model(run, which)
    options |= {"format": file_format, "overwrite": overwrite}
    cost = {}
    if quantize:
        options["quantize"] = quantize
        limit = 0.01 if tolerance is None else tolerance
        cost = _export_measured(recipe, model, path, limit, **options)
    else:
        options["gallery"] = _gallery(recipe, model, gallery)
        with waiting("Writing the export and comparing it with the model"):
            path = export_model(model, path, **options)
    common.say(f"Exported to {path}")
    common.answer({"model": path, "format": file_format, **cost})
    if file_format == "saved_model":
        mount = f"{path.parent.resolve()}:/models/{path.parent.name}"
        common.suggest(
            "docker", "run", "-p", "8501:8501", "-v", mount,
            "-e", f"MODEL_NAME={path.parent.name}", "tensorflow/serving",
        )  # fmt: skip


def _export_measured(
    recipe: "Recipe",
    model: "keras.Model",
    path: Path,
    tolerance: float,
    overwrite: bool,
    **options: Any,
) -> dict[str, Any]:
    """Writes a quantized export, unless it costs too much; returns its cost."""
    from keras_dml.embedding.engines import SUFFIXES
    from keras_dml.evaluation import compare, evaluate
    from keras_dml.export import export_model
    from keras_dml.export.portable import free_file, new_export
    from keras_dml.utils.progress import waiting

    free_file(path, SUFFIXES[options["format"]], overwrite)
    splits = recipe.data.load(recipe.seed, recipe.train_on)
    # A run that trains on all classes has only those of the test left.
    held_out = splits.validation if len(splits.validation) else splits.test
    metrics = ["recall@1", "map@r"]
    with new_export(path) as new:
        with waiting("Calibrating and writing the export"):
            export_model(model, new, calibration=splits.train, **options)
        with waiting("Measuring what it costs"):
            exact = evaluate(model, held_out, metrics=metrics)
            coarse = evaluate(model, held_out, metrics=metrics, engine=new)
        cost = compare(exact, coarse)
        common.say(f"Changes on {held_out!r}, which were held out:\n{cost}")
        loss = -cost["recall@1"].estimate
        if loss > tolerance:
            raise click.ClickException(
                f"The export loses {loss:.4f} of recall@1, more than the "
                f"--tolerance of {tolerance}. Nothing was written. Use "
                "another --format, or a larger --tolerance."
            )
    return {"float32": dict(exact), "int8": dict(coarse), "cost": dict(cost)}


def _gallery(
    recipe: "Recipe", model: "keras.Model", gallery: str | None
) -> "Examples | Index | None":
    from keras_dml import data
    from keras_dml.search import Index, is_index

    if gallery is None:
        return None
    if gallery not in ("train", "test"):
        if is_index(gallery):
            return Index.load(gallery, model)
        return data.image_folder(gallery)
    splits = recipe.data.load(recipe.seed, recipe.train_on)
    if gallery == "train":
        return splits.train
    if splits.gallery_rows is None:
        return splits.test
    return splits.test.select(splits.gallery_rows)
