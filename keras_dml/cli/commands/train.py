"""`keras-dml train`."""

import os
import sys
from importlib.util import find_spec

import click

from keras_dml.cli import common


def _set_backend(
    context: click.Context, option: click.Parameter, name: str | None
) -> None:
    """Sets the backend of Keras, which is not imported yet."""
    keras = sys.modules.get("keras")
    if name is None:
        return
    if find_spec(name) is None:
        raise click.UsageError(
            f"--backend {name} needs a package that is not installed. Use "
            f"pip install {name}, or leave the option out."
        )
    if keras is not None and name != keras.config.backend():
        raise click.UsageError(
            f"--backend {name} needs a process that has not imported Keras. "
            f"Received: one in which Keras uses {keras.config.backend()}. Set "
            f"KERAS_BACKEND={name} before."
        )
    os.environ["KERAS_BACKEND"] = name


@common.command(
    "keras-dml train glyphs/baseline --set epochs=1 --output runs/first"
)
@common.recipe_argument
@common.setting_option
@common.output_option(
    "Folder of the run. [default: runs/NAME-OF-RECIPE, with a number if "
    "that exists]"
)
@click.option("--overwrite", is_flag=True, help="Replace a run in --output.")
@click.option(
    "--log",
    type=click.Choice(["mlflow", "tensorboard", "wandb"]),
    multiple=True,
    help="Also log the training to an experiment tracker; may be repeated. "
    "Each needs the extra of its name.",
)
@click.option(
    "--backend",
    type=click.Choice(["tensorflow", "jax"]),
    callback=_set_backend,
    expose_value=False,
    help="What Keras computes with. [default: KERAS_BACKEND, or Keras's own "
    "setting]",
)
@click.option(
    "--devices",
    type=click.IntRange(1),
    help="Number of devices of this machine to train on: its first GPUs. "
    "[default: one]",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the interrupted run in --output, by default the last run "
    "with the recipe's name; start a new run if there is none.",
)
@common.save_every_option
@common.json_option
def train(
    recipe: str,
    settings: tuple[str, ...],
    output: str | None,
    overwrite: bool,
    log: tuple[str, ...],
    devices: int | None,
    resume: bool,
    save_every: str | None,
) -> None:
    """Train RECIPE and measure the model before and after training.

    After every epoch, the training state is saved to state/ in the folder of
    the run. --resume continues from there; the result is bit-identical to an
    uninterrupted training. After Ctrl-C, the model is saved and measured;
    SIGTERM saves the state and ends with status 75.
    """
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite cannot be combined.")
    common.say(", ".join([f"Recipe: {recipe}", *settings]))
    common.import_package()
    from keras_dml import distribution, recipes, runs
    from keras_dml.resuming import TERMINATED
    from keras_dml.runs.folder import resume_command
    from keras_dml.runs.outcome import VERDICTS, definitions, divisions_table
    from keras_dml.runs.tracking import check_trackers

    check_trackers(log)
    checked = recipes.load(recipe, settings)
    find = runs.last_folder if resume else runs.free_folder
    folder = output or find(checked.name)
    verbose = 1 if sys.stdout.isatty() else 2
    strategy = distribution.use_devices(devices)
    try:
        outcome = runs.train(
            checked, folder, verbose, overwrite, log, strategy,
            resume, save_every,
        )  # fmt: skip
    except SystemExit as ended:
        if ended.code == TERMINATED:
            common.say("Ended by SIGTERM.", err=True)
            common.suggest(*resume_command(folder), err=True)
        raise
    common.answer({"run": folder, "recipe": checked.name, **outcome.to_dict()})
    title = f"{checked.name}: {outcome.images['test']:,} test images of "
    title += f"{outcome.after.num_classes:,} classes"
    common.print_table(outcome.metrics_table(), title)
    common.say("\n".join(definitions(outcome.after)))
    common.say(VERDICTS)
    for line in outcome.baseline_lines():
        common.say(line)
    if outcome.divisions:
        common.print_table(divisions_table(outcome.divisions), "Divisions")
    common.say(outcome.choice_line())
    common.say("\n  ".join(outcome.cost_lines()))
    common.say(f"Run: {folder} (summary.md, best.keras, last.keras)")
    if "tensorboard" in log:
        common.say(f"Log: tensorboard --logdir {folder}")
    for line in outcome.unsaved_lines():
        common.say(line, err=True)
    if outcome.unsaved:
        sys.exit(1)
    if outcome.interrupted:
        common.say("Interrupted. last.keras is the model at that time.")
        common.suggest(*resume_command(folder))
        sys.exit(common.INTERRUPTED)
    common.suggest("keras-dml", "report", folder)
