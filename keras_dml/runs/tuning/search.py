"""Search: the trials of a recipe, one after the other."""

import csv
import io
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np
import yaml

from keras_dml import callbacks, data
from keras_dml.recipes import Recipe, building, dump
from keras_dml.runs.folder import changed_settings
from keras_dml.runs.training import built, validation_of
from keras_dml.runs.tuning.space import Space, changed, checked, nested
from keras_dml.runs.tuning.study import (
    BEST,
    DATABASE,
    ERROR,
    LOCK,
    RECIPE,
    SPACE,
    TRIALS,
    Tuned,
    as_text,
    folder_of,
    load_study,
    open_study,
)
from keras_dml.utils.arguments import check_count, check_type
from keras_dml.utils.files import locked, one_at_a_time, write_atomically
from keras_dml.utils.progress import time_left, waiting
from keras_dml.utils.types import Positive

logger = logging.getLogger(__name__)


def tune(
    recipe: Recipe,
    space: Mapping[str, Any],
    folder: str | os.PathLike[str],
    *,
    trials: int = 20,
    timeout: float | None = None,
    warmup_epochs: int | None = None,
    seed: int = 0,
    verbose: int | str = 0,
    echo: Callable[[str], None] = lambda line: None,
) -> Tuned:
    """Searches for the best settings of a recipe on validation classes.

    Each trial trains the recipe with values suggested by Optuna's TPE. Its
    value is the best value of the recipe's monitor on classes held out of
    training. A trial that is below the median of the others at some epoch after
    `warmup_epochs` is stopped there. Trials never measure test classes.

    The same call continues an existing study in the folder, even if a process
    was killed during a trial: the trial continues from its last epoch. Several
    processes on one machine can work on one folder at the same time. If a trial
    fails, because settings are incompatible, memory runs out, or the loss is
    NaN, the reason is recorded, and the study continues.

    Args:
        recipe: The recipe whose settings are searched.
        space: For each dotted setting a range, `{"low": 1e-5, "high": 1e-2,
            "log": True}`, or a list of choices.
        folder: The folder of the study, with `study.db`, `trials.csv`, and
            `best.yaml`, a recipe with the best settings.
        trials: Total number of trials, including those of other processes and
            calls. Killed trials do not count.
        timeout: Seconds after which no new trial begins; None for no limit.
        warmup_epochs: Epochs of a trial in which it is not compared with
            others, because small learning rates begin slowly. None for a third
            of its epochs, rounded up. As many as there are epochs, or more, let
            every trial end.
        seed: Seed of the suggestions. A single process suggests the same values
            every time, even if it was killed in between.
        verbose: As for `keras.Model.fit`.
        echo: Receives a line when a trial begins, with the time that is left,
            and when it ends.

    Returns:
        All trials, and the best one.

    Raises:
        FileExistsError: If the folder contains something else.
        ImportError: If optuna is not installed.
        RecipeError: If a setting of the space is unknown, or a value is not
            valid for the recipe.
        ValueError: If the space is invalid, the study in the folder has a
            different recipe or space, or no trial succeeded.
        SystemExit: On SIGTERM, with status 75; see `callbacks.Resume`.
    """
    check_count("tune", "trials", trials)
    check_type("tune", "timeout", timeout, Positive | None)
    if warmup_epochs is not None:
        check_count("tune", "warmup_epochs", warmup_epochs, least=0)
    wanted = checked(space, recipe)
    path = Path(folder)
    _begin(path, recipe, space)
    splits = building.splits(recipe)
    if not len(splits.validation):
        raise ValueError(
            f"The recipe {recipe.name!r} must hold out validation classes, on "
            "which trials are compared. Received: 0 validation examples. Use "
            "`data.validation: 0.2`."
        )
    start, done = time.monotonic(), 0
    end = start + timeout if timeout is not None else None
    while end is None or time.monotonic() < end:
        with ExitStack() as held:
            trial = _next(path, wanted, trials, seed, held)
            if trial is None:
                break
            rest = trials - len(trial.study.trials) + 1
            left = time_left(time.monotonic() - start, done, done + rest)
            settings = as_text(wanted.values(trial.params))
            echo(
                f"[{trials - rest + 1}/{trials}] trial {trial.number}: "
                f"{settings}{left}"
            )
            _run(path, recipe, wanted, trial, splits, warmup_epochs, verbose)
        done += 1
        tuned = load_study(path)
        _write(tuned)
        echo(f"    {_outcome(tuned, trial.number)}")
    tuned = load_study(path)
    _check_success(tuned)
    return tuned


def _begin(folder: Path, recipe: Recipe, space: Mapping[str, Any]) -> None:
    """Makes the folder of a study, or checks that it is the same one."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK):
        names = {x.name for x in folder.iterdir()} - {LOCK}
        if DATABASE not in names:
            if names - {RECIPE, SPACE}:
                raise FileExistsError(
                    f"The output {folder} already exists, and is not a study. "
                    "Use another --output."
                )
            content = yaml.safe_dump(dict(space), sort_keys=False)
            write_atomically(folder / RECIPE, dump(recipe))
            write_atomically(folder / SPACE, content)
            open_study(folder)
            return
    changes = changed_settings(folder, recipe)
    if yaml.safe_load((folder / SPACE).read_text("utf-8")) != dict(space):
        changes.append("the space")
    if changes:
        raise ValueError(
            f"The study {str(folder)!r} cannot be continued, because these "
            "settings have changed:\n  "
            + "\n  ".join(changes)
            + "\nUse the recipe and the space of the study, or another "
            "--output."
        )


def _next(
    folder: Path, space: Space, most: int, seed: int, held: ExitStack
) -> Any:
    """A trial that no other process has; None if there are enough.

    The trial of a process that is gone comes first. `held` receives the lock
    of the trial, which tells other processes that it is not dead.
    """
    import optuna

    def sampler(number: int) -> Any:
        # One for each trial: those that were killed change nothing.
        return optuna.samplers.TPESampler(seed=seed + number)

    with locked(folder / LOCK):
        study = open_study(folder)
        begun = study.trials
        running = [x for x in begun if not x.state.is_finished()]
        for frozen in running:
            with suppress(BlockingIOError):
                held.enter_context(_lock(folder, frozen.number))
                study.sampler = sampler(frozen.number)
                trial = optuna.trial.Trial(study, frozen._trial_id)
                space.suggest(trial)
                return trial
        if len(begun) >= most:
            return None
        study.sampler = sampler(len(begun))
        trial = study.ask()
        held.enter_context(_lock(folder, trial.number))
        space.suggest(trial)
        return trial


def _lock(folder: Path, number: int) -> AbstractContextManager[None]:
    return one_at_a_time(folder_of(folder, number), "trial")


def _run(
    folder: Path,
    recipe: Recipe,
    space: Space,
    trial: Any,
    splits: data.DataSplits,
    warmup_epochs: int | None,
    verbose: int | str,
) -> None:
    """Trains a trial and tells its study how that went."""
    from optuna.trial import TrialState

    state = folder_of(folder, trial.number) / "state"
    settings = space.values(trial.params)
    try:
        own = changed(recipe, settings, f"of trial {trial.number}")
        if (own.data, own.seed) != (recipe.data, recipe.seed):
            splits = building.splits(own)
        trial.study.pruner = _pruner(own.epochs, warmup_epochs)
        judged = train_trial(own, splits, state, trial, verbose)
    except Exception as error:
        said = f"{type(error).__name__}: {error}".strip()[:1000]
        logger.warning("Trial %d failed: %s", trial.number, said)
        trial.set_user_attr(ERROR, said)
        trial.study.tell(trial, state=TrialState.FAIL)
    else:
        if judged.is_pruned:
            trial.study.tell(trial, state=TrialState.PRUNED)
        else:
            trial.study.tell(trial, float(np.nanmax(judged.values)))
    shutil.rmtree(state, ignore_errors=True)


def _outcome(tuned: Tuned, number: int) -> str:
    """How a trial ended, and which is the best so far."""
    trial = next(x for x in tuned.trials if x.number == number)
    if trial.value is None:
        return trial.state
    said = f"{tuned.recipe.evaluation.monitor} {trial.value:.4f}"
    if trial.seconds is not None:
        said += f" ({trial.seconds:.0f} s)"
    if trial.state == "pruned":
        return f"{said}, pruned after {len(trial.curve)} epochs"
    best = tuned.best
    if best is None or best.number == number:
        return f"{said}, the best so far"
    return f"{said}; the best is {best.value:.4f} of trial {best.number}"


def _pruner(most: int, warmup_epochs: int | None) -> Any:
    """Compares a trial with others after every epoch after the warm-up."""
    import optuna

    warmup = math.ceil(most / 3) if warmup_epochs is None else warmup_epochs
    # The step of an epoch is its number, counted from 1.
    return optuna.pruners.MedianPruner(n_warmup_steps=warmup + 1)


def _write(tuned: Tuned) -> None:
    """Writes the table, and the recipe of the best settings."""
    write_atomically(tuned.folder / TRIALS, _csv(tuned))
    best = tuned.best
    if best is None:
        return
    content = {
        "base": RECIPE,
        "name": f"{tuned.recipe.name}-tuned",
        **nested(best.settings),
    }
    about = (
        f"# Trial {best.number} of {len(tuned.trials)}: "
        f"{tuned.recipe.evaluation.monitor} = {best.value:.4f} on validation "
        "classes.\n"
    )
    recipe = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_atomically(tuned.folder / BEST, about + recipe)


def _csv(tuned: Tuned) -> str:
    """All trials, with all digits; sections are JSON."""
    keys = list(tuned.space.distributions)
    monitor = tuned.recipe.evaluation.monitor
    rows: list[list[Any]] = [
        ["trial", "state", monitor, *keys, "epochs", "seconds", "error"]
    ]
    for x in tuned.ranked:
        settings = (x.settings.get(key) for key in keys)
        cells = (json.dumps(v) if isinstance(v, dict) else v for v in settings)
        row = x.number, x.state, x.value, *cells, len(x.curve), x.seconds
        rows.append([*row, x.error])
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _check_success(tuned: Tuned) -> None:
    failed = [x for x in tuned.trials if x.state == "failed"]
    if failed and len(failed) == len(tuned.trials):
        raise ValueError(
            f"All {len(failed)} trials of the study {str(tuned.folder)!r} "
            f"failed. The last one: {failed[-1].error} With "
            f"{as_text(failed[-1].settings)}. See {TRIALS} there."
        )


class Judged(keras.callbacks.Callback):
    """Tells Optuna how a trial does, and ends it where that is not well.

    Attributes:
        values: What was monitored after each epoch; NaN after those that were
            not measured.
        is_pruned: Whether the trial was ended.
    """

    def __init__(self, trial: Any, monitor: str) -> None:
        super().__init__()
        self.trial = trial
        self.monitor = monitor
        self.values: list[float] = []
        self.is_pruned = False
        # Of a trial that was killed, before it could save its state.
        self._reported = trial.study.trials[trial.number].intermediate_values

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs = logs or {}
        for name in ("loss", self.monitor):
            if not math.isfinite(logs.get(name, 0.0)):
                raise ValueError(
                    f"`{name}` is {logs[name]} after epoch {epoch + 1}"
                )
        value = float(logs.get(self.monitor, math.nan))
        self.values.append(value)
        if math.isnan(value):
            return
        if epoch + 1 not in self._reported:
            self.trial.report(value, step=epoch + 1)
        if self.trial.should_prune():
            self.is_pruned = True
            self.model.stop_training = True

    def get_state(self) -> dict[str, Any]:
        """What it has seen of a training; see `callbacks.Resume`."""
        return {"values": self.values, "is_pruned": self.is_pruned}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` gave."""
        self.values = state["values"]
        self.is_pruned = state["is_pruned"]
        if self.is_pruned:
            self.model.stop_training = True


def train_trial(
    recipe: Recipe,
    splits: data.DataSplits,
    folder: Path,
    trial: Any,
    verbose: int | str,
) -> Judged:
    """Trains a recipe and tells a trial of Optuna its validation metric.

    Test classes are not looked at. In `folder` is the state of the training,
    from which it goes on after it was killed.

    Raises:
        ValueError: If the recipe does not fit its data, or the loss is NaN.
    """
    keras.utils.clear_session()
    batches, model = built(recipe, splits)
    seen = building.features(recipe, model, splits)
    judged = Judged(trial, f"val_{recipe.evaluation.monitor}")
    # Otherwise Keras shows a bar.
    shown = None if verbose == 0 else False
    with waiting(f"trial {trial.number}", shown):
        model.fit(
            building.pipeline(recipe, seen.train, batches, model.input_shape),
            epochs=recipe.epochs,
            callbacks=[
                *building.callbacks(recipe, seen.train, batches),
                *validation_of(recipe, seen),
                judged,
                callbacks.Resume(folder),
            ],
            verbose=verbose,
        )
    return judged
