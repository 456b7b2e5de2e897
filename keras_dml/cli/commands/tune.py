"""`keras-dml tune`."""

from typing import Any

import click

from keras_dml.cli import common

MAX_ROWS = 10
"""Trials that are printed; `study.db` has all."""


@common.command("keras-dml tune glyphs/baseline --space space.yaml --trials 20")
@common.recipe_argument
@click.option(
    "--space",
    required=True,
    type=click.Path(dir_okay=False),
    help="YAML file of the settings to search: ranges and lists of choices.",
)
@common.setting_option
@common.output_option("Folder of the study. [default: studies/NAME-OF-RECIPE]")
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=20,
    help="Total number of trials in the study, over all processes.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    help="Seconds after which no new trial begins. [default: no limit]",
)
@click.option(
    "--warmup-epochs",
    type=click.IntRange(0),
    help="Epochs of a trial before it may be pruned. [default: a third]",
)
@click.option("--seed", default=0, help="Seed of the suggestions.")
@common.command_body
def tune(
    recipe: str,
    space: str,
    settings: tuple[str, ...],
    output: str | None,
    trials: int,
    timeout: float | None,
    warmup_epochs: int | None,
    seed: int,
) -> None:
    """Search for the best settings of RECIPE on validation classes.

    Prints the trials, the best first, and the command that trains the best
    settings. The same command continues a study that was interrupted. Needs
    the extra `tune`.
    """
    from pathlib import Path

    from keras_dml import recipes, runs
    from keras_dml.recipes.inheritance import read_yaml
    from keras_dml.runs.tuning import BEST, trial_rows

    content = recipes.load(recipe, settings)
    folder = Path(output or Path("studies") / content.name)
    try:
        values = read_yaml(space)
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"The space {space} cannot be read: {error}"
        ) from None
    study = runs.tune(
        content, values, folder, trials=trials, timeout=timeout,
        warmup_epochs=warmup_epochs, seed=seed,
    )  # fmt: skip
    rows = trial_rows(study)
    common.answer({"study": folder, "trials": rows})
    header = ["trial", "state", content.evaluation.monitor, "settings"]
    table = []
    for row in rows[:MAX_ROWS]:
        cells = [f"{x.rpartition('.')[2]}={_cell(row[x])}" for x in values]
        table.append([*map(_cell, [*row.values()][:3]), ", ".join(cells)])
    title = f"{content.name}: the best of {len(rows)} trials"
    common.print_table([header, *table], title)
    common.say(f"Study: {folder}")
    if (folder / BEST).exists():
        common.suggest("keras-dml", "train", folder / BEST)


def _cell(value: Any) -> str:
    """A value as the table shows it."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
