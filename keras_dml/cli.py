"""The `keras-dml` command."""

import logging
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from keras_dml.data import DataSplits
    from keras_dml.runs.outcome import Table

# What users can mend; anything else is a bug and keeps its traceback.
USER_ERRORS = (ValueError, OSError)


def reports_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Prints what a user can mend as one message, without a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except USER_ERRORS as error:
            if os.environ.get("KERAS_DML_TRACEBACK"):
                raise
            raise click.ClickException(str(error)) from error

    return wrapped


@click.group()
@click.version_option(package_name="keras-dml")
def main() -> None:
    """Deep metric learning for Keras: train, evaluate, export.

    Set KERAS_DML_TRACEBACK=1 to see where an error comes from.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.basicConfig(format="%(levelname)s %(message)s")


setting_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY.KEY=VALUE",
    help="Change a setting of the recipe; may be repeated.",
)

model_option = click.option(
    "--model",
    "which",
    type=click.Choice(["best", "last"]),
    default="best",
    show_default=True,
    help="Which model of the run.",
)


@main.command()
@click.argument("recipe", type=click.Path(dir_okay=False))
@setting_option
@click.option(
    "--output",
    type=click.Path(),
    help="Folder of the run. [default: runs/NAME-OF-RECIPE, with a number "
    "where that is taken]",
)
@click.option("--overwrite", is_flag=True, help="Replace a run in --output.")
@reports_errors
def train(
    recipe: str, settings: tuple[str, ...], output: str | None, overwrite: bool
) -> None:
    """Train what RECIPE describes, and measure it before and after."""
    from keras_dml import recipes, runs

    checked = recipes.load(recipe, settings)
    folder = runs.create_folder(
        output or runs.free_folder(checked.name), checked, overwrite
    )
    verbose = 1 if sys.stdout.isatty() else 2
    outcome = runs.train(checked, folder, verbose=verbose)
    _print_table(
        outcome.metrics_table(),
        f"{checked.name}: {outcome.images['test']} images of test classes",
    )
    if outcome.divisions:
        _print_table(outcome.divisions_table(), "Divisions")
    click.echo(outcome.choice_line())
    click.echo("\n  ".join(outcome.cost_lines()))
    click.echo(f"Run: {folder} (summary.md, best.keras, last.keras)")
    if outcome.interrupted:
        click.echo("Interrupted: last.keras is the model as it was then.")
        sys.exit(130)


@main.command()
@click.argument("run", type=click.Path(file_okay=False))
@click.option(
    "--split",
    type=click.Choice(["test", "validation", "train"]),
    default="test",
    show_default=True,
    help="Which images to measure on.",
)
@model_option
@reports_errors
def evaluate(run: str, split: str, which: str) -> None:
    """Measure the model in the folder RUN again, to the same digits."""
    import keras

    from keras_dml import runs
    from keras_dml.recipes import building

    recipe = runs.load_recipe(run)
    keras.config.set_dtype_policy(recipe.precision)
    splits = building.splits(recipe)
    model = runs.load_model(run, which)
    results = runs.measure(recipe, model, splits, split)
    rows = [[name, f"{value:.4f}"] for name, value in results.items()]
    _print_table(
        [["metric", which], *rows],
        f"{recipe.name}: {len(getattr(splits, split))} images of {split} "
        "classes",
    )


@main.command()
@click.argument("run", type=click.Path(file_okay=False))
@click.option(
    "--output",
    type=click.Path(),
    help="Folder of the model; the next free version goes into it. "
    "[default: saved_models/NAME-OF-RECIPE]",
)
@model_option
@reports_errors
def export(run: str, output: str | None, which: str) -> None:
    """Write the model in the folder RUN for TensorFlow Serving."""
    from rich.console import Console

    from keras_dml import runs
    from keras_dml.export import export as export_model

    recipe = runs.load_recipe(run)
    target = output or Path("saved_models") / recipe.name
    with Console(stderr=True).status("Exporting"):
        path = export_model(runs.load_model(run, which), target)
    click.echo(f"Exported to {path}")


@main.command()
@click.argument("recipe", required=False, type=click.Path(dir_okay=False))
@setting_option
@click.option(
    "--folder",
    type=click.Path(file_okay=False),
    default="recipes",
    show_default=True,
    help="Where to look for recipes.",
)
@reports_errors
def recipes(recipe: str | None, settings: tuple[str, ...], folder: str) -> None:
    """List the recipes, or print RECIPE with everything filled in."""
    from keras_dml.recipes import dump, load

    if recipe:
        click.echo(dump(load(recipe, settings)), nl=False)
        return
    # A leading underscore marks what only other recipes are based on.
    files = sorted(Path(folder).rglob("[!_]*.yaml"))
    if not files:
        raise click.ClickException(
            f"There are no recipes in {folder!r}. Use --folder."
        )
    rows = [[str(path), _first_comment(path)] for path in files]
    _print_table([["recipe", "what it is"], *rows], "Recipes")


@main.group()
def data() -> None:
    """Look at a data set: what is in it, and how it is split."""


preview_option = click.option(
    "--preview",
    type=click.Path(dir_okay=False),
    metavar="FILE.png",
    help="Write a sheet of training images, one class a row.",
)


@data.command()
@preview_option
@reports_errors
def glyphs(preview: str | None) -> None:
    """The embedded data set of typeface drawings."""
    from keras_dml.data import glyphs as load_glyphs

    _show(load_glyphs(), preview)


@data.command()
@click.argument("path", type=click.Path(file_okay=False))
@click.option(
    "--unreadable",
    type=click.Choice(["skip", "raise"]),
    default="skip",
    show_default=True,
    help="What to do about files that are not images.",
)
@preview_option
@reports_errors
def folder(path: str, unreadable: str, preview: str | None) -> None:
    """Images in PATH/class/image.jpg."""
    from keras_dml.data import image_folder_splits

    _show(image_folder_splits(path, unreadable=unreadable), preview)


@data.command()
@click.argument("path", type=click.Path())
@preview_option
@reports_errors
def check(path: str, preview: str | None) -> None:
    """Say which data set is at PATH, and what is missing."""
    from keras_dml.data import check as look_at

    found = look_at(path)
    click.echo(f"{path} is {found.kind}: keras_dml.data.{found.loader}")
    for problem in found.problems:
        click.echo(f"! {problem}")
    if found.splits is None:
        sys.exit(1)
    _show(found.splits, preview)


def _show(splits: "DataSplits", preview: str | None) -> None:
    rows = [
        [name, str(images.num_classes), str(len(images))]
        for name, images in (
            ("train", splits.train),
            ("validation", splits.validation),
            ("test", splits.test),
            *((f"test, {name}", x) for name, x in splits.tests.items()),
        )
    ]
    _print_table([["classes for", "classes", "images"], *rows], splits.name)
    if preview:
        from keras_dml.data import preview as draw

        draw(splits.train).save(preview)
        click.echo(f"Wrote {preview}")


def _first_comment(path: Path) -> str:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _print_table(table: "Table", title: str) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable

    header, *rows = table
    drawn = RichTable(*header)
    for row in rows:
        drawn.add_row(*row)
    click.echo(title)
    Console().print(drawn)
