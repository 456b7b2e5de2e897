"""`keras-dml evaluate`."""

import click

from keras_dml.cli.common import model_option, print_table, reports_errors


@click.command()
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
    print_table(
        [["metric", which], *rows],
        f"{recipe.name}: {len(getattr(splits, split))} images of {split} "
        "classes",
    )
