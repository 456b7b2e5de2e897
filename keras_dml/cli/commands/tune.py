"""`keras-dml tune`."""

import sys

import click

from keras_dml.cli.common import (
    INTERRUPTED,
    OutputFolder,
    command_body,
    example,
    print_table,
    recipe_argument,
    say,
    setting_option,
)
from keras_dml.cli.json_output import answer, json_option

MOST = 10
"""Trials that are printed; `trials.csv` has all."""


@click.command(
    epilog=example(
        "keras-dml tune glyphs/baseline --space space.yaml --trials 20",
    )
)
@recipe_argument
@click.option(
    "--space",
    required=True,
    type=click.Path(dir_okay=False),
    help="YAML file of the settings to search: ranges and lists of choices.",
)
@setting_option
@click.option(
    "--output",
    type=OutputFolder(),
    help="Folder of the study. [default: studies/NAME-OF-RECIPE]",
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=20,
    help="Total number of trials, including those of earlier and other "
    "processes.",
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
@json_option
@command_body
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

    from keras_dml import recipes, reports, runs
    from keras_dml.recipes.inheritance import read_yaml
    from keras_dml.runs.tuning import read_space

    checked = recipes.load(recipe, settings)
    read_space(space, checked)
    folder = Path(output or Path("studies") / checked.name)
    try:
        tuned = runs.tune(
            checked, read_yaml(space), folder, trials=trials, timeout=timeout,
            warmup_epochs=warmup_epochs, seed=seed, echo=say,
        )  # fmt: skip
    except KeyboardInterrupt:
        say("Interrupted. Run the same command to continue.", err=True)
        sys.exit(INTERRUPTED)
    answer({"study": folder, **tuned.to_dict()})
    header, *rows = tuned.table()
    title = f"{checked.name}: {len(rows)} trials"
    if len(rows) > MOST:
        title += f", of which the best {MOST}"
    print_table([header, *rows[:MOST]], title)
    page = reports.study_report(folder)
    say(f"Study: {folder} (trials.csv, {page.name})")
    if tuned.best is not None:
        say(f"Best: keras-dml train {folder / 'best.yaml'}")
