"""`keras-dml export`."""

from pathlib import Path

import click

from keras_dml.cli.common import model_option, reports_errors


@click.command()
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
