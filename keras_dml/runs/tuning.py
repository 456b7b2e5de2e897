"""Hyper-parameter search: an Optuna study over the settings of a recipe."""

import json
import math
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import yaml

from keras_dml.recipes import Recipe, dump, validate
from keras_dml.recipes.inheritance import merge, with_origin
from keras_dml.runs.measuring import check_splits
from keras_dml.utils.arguments import check_arguments, import_extra
from keras_dml.utils.files import differences, write_atomically
from keras_dml.utils.types import Count, NonNegativeInt, Positive

if TYPE_CHECKING:
    import optuna

DATABASE, BEST = "study.db", "best.yaml"
ERROR = "error"
"""User attribute of failed trials: the reason."""

HEARTBEAT_SECONDS, GRACE_SECONDS = 5, 30
_STATES = ("complete", "pruned", "running", "waiting", "fail")


@check_arguments
def tune(
    recipe: Recipe,
    space: Mapping[str, Any],
    folder: str | os.PathLike[str],
    *,
    trials: Count = 20,
    timeout: Positive | None = None,
    warmup_epochs: NonNegativeInt | None = None,
    seed: int = 0,
    verbose: int | str = 0,
) -> "optuna.Study":
    """Searches for the best settings of a recipe on validation classes.

    Each trial trains the recipe with values suggested by Optuna's TPE. Its
    value is the best value of the recipe's monitor on classes held out of
    training. A trial that is below the median of the others at some epoch after
    `warmup_epochs` is pruned. Trials never measure test classes.

    The same call continues an existing study in the folder. Several processes
    on one machine can work on one folder at the same time. Half a minute after
    a process was killed, its trial is trained again. If a trial fails, because
    settings are incompatible, memory runs out, or the loss is NaN, the reason
    is its user attribute "error", and the study continues.

    Args:
        recipe: The recipe whose settings are searched.
        space: For each dotted setting a range, `{"low": 1e-5, "high": 1e-2,
            "log": True}`, or a list of choices.
        folder: The folder of the study, with `study.db` and `best.yaml`, a
            recipe with the best settings.
        trials: Total number of trials, including those of other processes and
            calls. Interrupted trials do not count.
        timeout: Seconds after which no new trial begins; None for no limit.
        warmup_epochs: Epochs of a trial in which it is not compared with
            others, because small learning rates begin slowly. None for a third
            of its epochs, rounded up. As many as there are epochs, or more, let
            every trial end.
        seed: Seed of the suggestions.
        verbose: As for `keras.Model.fit`.

    Returns:
        Optuna's study. A choice that is a section, such as a loss with its
        arguments, is a parameter of the trial as YAML.

    Raises:
        FileExistsError: If the folder contains something else.
        ImportError: If optuna is not installed.
        RecipeError: If a setting of the space is unknown, or a value is not
            valid for the recipe.
        ValueError: If the space is invalid, the study in the folder has a
            different recipe or space, or no trial succeeded.
    """
    optuna = import_extra("tune", "optuna", "tune")
    check_space(space, recipe)
    path = Path(folder)
    study = _open_study(path, recipe, space)
    splits = recipe.data.load(recipe.seed, recipe.train_on)
    if not len(splits.validation):
        raise ValueError(
            f"The recipe {recipe.name!r} must hold out validation classes, on "
            "which trials are compared. Received: 0 validation examples. Use "
            "`data.validation: 0.2`."
        )

    def train(trial: Any) -> float:
        """Trains a trial; returns the best value of the monitor."""
        # One seed for each trial: a study that is continued draws new values.
        study.sampler = optuna.samplers.TPESampler(seed=seed + trial.number)
        settings = suggest(trial, space)
        try:
            changed = change_recipe(
                recipe, settings, f"of trial {trial.number}"
            )
            data = splits
            if (changed.data, changed.seed) != (recipe.data, recipe.seed):
                data = changed.data.load(changed.seed, changed.train_on)
            warmup = warmup_epochs
            if warmup is None:
                warmup = math.ceil(changed.epochs / 3)
            # The step of an epoch is its number, counted from 1.
            study.pruner = optuna.pruners.MedianPruner(
                n_warmup_steps=warmup + 1
            )
            keras.utils.clear_session()
            keras.utils.set_random_seed(changed.seed)
            keras.config.set_dtype_policy(changed.precision)
            check_splits(changed, data)
            sampler = changed.method.sampler(
                data.train, changed.batches, changed.seed
            )
            model = changed.build(sampler)
            training = changed.training(model, sampler, data)
            reports = ReportEpochs(trial, f"val_{changed.evaluation.monitor}")
            training.fit(changed.epochs, [reports], verbose)
            return max(reports.values)
        except optuna.TrialPruned:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".strip()[:1000]
            trial.set_user_attr(ERROR, reason)
            raise

    end = time.monotonic() + (math.inf if timeout is None else timeout)
    while time.monotonic() < end:
        states = [x.state.name for x in counted_trials(study)]
        if "WAITING" in states or len(states) < trials:
            study.optimize(train, n_trials=1, catch=Exception)
            best = trial_rows(study)[0]
            if best["state"] == "complete":
                settings = {"name": f"{recipe.name}-tuned"}
                settings |= {key: best[key] for key in space}
                tuned = change_recipe(recipe, settings, "of the best trial")
                write_atomically(path / BEST, dump(tuned))
        elif "RUNNING" in states:
            # Another process works on this trial, or was killed in it.
            time.sleep(1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # It is experimental.
                optuna.storages.fail_stale_trials(study)
        else:
            break
    errors = [x.user_attrs.get(ERROR) for x in counted_trials(study)]
    if errors and all(errors):
        raise ValueError(
            f"All {len(errors)} trials of the study {str(folder)!r} failed. "
            f"The last one: {errors[-1]}"
        )
    return study


def check_space(space: Any, recipe: Recipe) -> None:
    """Checks the keys of a space, and that its values fit a recipe."""
    if not isinstance(space, Mapping) or not space:
        raise ValueError(
            "The space of tune must have dotted settings of the recipe as "
            f"keys. Received: {str(space)[:100]!r}. Use "
            "`optimizer.learning_rate: {low: 1.0e-5, high: 1.0e-2, log: true}`."
        )
    for key, values in space.items():
        try:
            if any(str(key).startswith(f"{parent}.") for parent in space):
                raise ValueError("It is inside another setting of the space.")
            with warnings.catch_warnings():
                # Optuna warns if the steps do not end at `high`.
                warnings.simplefilter("error")
                distribution = _distribution(values)
        except (TypeError, ValueError, UserWarning) as error:
            raise ValueError(
                f"`{key}` of a space must be a range or a list of choices. "
                f"Received: {str(values)[:200]}. {error} Use {{low: 1.0e-5, "
                "high: 1.0e-2, log: true}, {low: 2, high: 8, step: 2} or a "
                "list of choices."
            ) from None
        is_list = isinstance(values, list)
        ends = values if is_list else (distribution.low, distribution.high)
        for end in ends:
            change_recipe(recipe, {key: end}, f"with {key}={end} (of tune)")


def _distribution(values: Any) -> Any:
    """Optuna's distribution of a list of choices, or of a range."""
    from optuna import distributions

    if isinstance(values, list):
        labels = list(dict.fromkeys(map(_label, values)))
        if len(labels) < max(len(values), 2):
            raise ValueError("There must be two choices or more, each once.")
        return distributions.CategoricalDistribution(labels)
    content = dict(values) if isinstance(values, Mapping) else {}
    low, high = (content.pop(x, math.nan) for x in ("low", "high"))
    step, log = content.pop("step", None), content.pop("log", False)
    numbers = (low, high, step or 1)
    if content or not (
        isinstance(log, bool)
        and all(isinstance(x, int | float) for x in numbers)
        and all(map(math.isfinite, numbers))
        and low < high
    ):
        raise ValueError(
            "A range has a number `low` below a number `high`, and may have a "
            "number `step`, and `log: true`."
        )
    if not (isinstance(low, int) and isinstance(high, int)):
        return distributions.FloatDistribution(low, high, log, step)
    if step is not None and step != int(step):
        raise ValueError("A step between integers must be whole.")
    whole_step = 1 if step is None else int(step)
    return distributions.IntDistribution(low, high, log, whole_step)


def suggest(trial: Any, space: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings for a trial of Optuna, by dotted key."""
    settings = {}
    for key, values in space.items():
        x = _distribution(values)
        if isinstance(values, list):
            value = trial.suggest_categorical(key, x.choices)
        else:
            is_whole = isinstance(x.low, int)
            draw = trial.suggest_int if is_whole else trial.suggest_float
            value = draw(key, x.low, x.high, step=x.step, log=x.log)
        settings[key] = _choice(values, value)
    return settings


def _choice(values: Any, parameter: Any) -> Any:
    """The value that a parameter of a trial stands for."""
    if isinstance(values, list):
        return {_label(x): x for x in values}[parameter]
    return parameter


def _label(value: Any) -> Any:
    """A choice as Optuna stores it: a scalar, or a section as YAML."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False)
    return text.strip()


def change_recipe(
    recipe: Recipe, settings: Mapping[str, Any], source: str
) -> Recipe:
    """Returns a recipe with some dotted settings changed."""
    sections: dict[str, Any] = {}
    for key, value in settings.items():
        *parents, last = str(key).split(".")
        section = sections
        for name in parents:
            section = section.setdefault(name, {})
        section[last] = value
    content = recipe.model_dump(mode="json")
    return validate(merge(content, with_origin(sections, False)), source)


def counted_trials(study: "optuna.Study") -> list[Any]:
    """Returns all trials but those that were interrupted."""
    return [
        x
        for x in study.trials
        if x.state.name != "FAIL" or ERROR in x.user_attrs
    ]


def trial_rows(study: "optuna.Study") -> list[dict[str, Any]]:
    """Returns values, settings and durations of trials, the best first."""
    monitor = study.user_attrs["recipe"]["evaluation"]["monitor"]
    space = study.user_attrs["space"]
    rows = [
        {
            "trial": x.number,
            "state": x.state.name.lower(),
            monitor: x.value,
            **dict.fromkeys(space),
            **{key: _choice(space[key], v) for key, v in x.params.items()},
            "epochs": len(x.intermediate_values),
            "seconds": x.duration.total_seconds() if x.duration else None,
            "error": x.user_attrs.get(ERROR),
        }
        for x in counted_trials(study)
    ]
    return sorted(
        rows, key=lambda x: (_STATES.index(x["state"]), -(x[monitor] or 0.0))
    )


def _open_study(folder: Path, recipe: Recipe, space: Mapping[str, Any]) -> Any:
    """Creates the study in a folder, or checks that it is the same one."""
    import optuna
    from sqlalchemy import URL

    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / DATABASE).exists() and any(folder.iterdir()):
        raise FileExistsError(
            f"The output {folder} already exists, and is not a study. "
            "Use another --output."
        )
    url = URL.create("sqlite", database=str((folder / DATABASE).resolve()))
    retry = optuna.storages.RetryHeartbeatStaleTrialCallback
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Heartbeats are experimental.
        storage = optuna.storages.RDBStorage(
            url.render_as_string(),
            heartbeat_interval=HEARTBEAT_SECONDS,
            grace_period=GRACE_SECONDS,
            heartbeat_stale_trial_callback=retry(),
        )
    study = optuna.create_study(
        storage=storage,
        study_name="study",
        direction="maximize",
        load_if_exists=True,
    )
    content = {"recipe": recipe.model_dump(mode="json"), "space": dict(space)}
    content = json.loads(json.dumps(content))  # As the database returns it.
    changes = differences(study.user_attrs or content, content)
    if changes:
        raise ValueError(
            f"The study {str(folder)!r} cannot be continued, because these "
            "settings have changed:\n  "
            + "\n  ".join(changes)
            + "\nUse the recipe and the space of the study, or another "
            "--output."
        )
    for key, value in content.items():
        study.set_user_attr(key, value)
    return study


class ReportEpochs(keras.callbacks.Callback):
    """Reports a metric of every epoch to a trial, and ends a pruned one."""

    def __init__(self, trial: Any, monitor: str) -> None:
        super().__init__()
        self.trial = trial
        self.monitor = monitor
        self.values: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        import optuna

        logs = logs or {}
        for name in ("loss", self.monitor):
            if not math.isfinite(logs.get(name, 0.0)):
                raise ValueError(
                    f"`{name}` is {logs[name]} after epoch {epoch + 1}"
                )
        if self.monitor in logs:
            self.values.append(float(logs[self.monitor]))
            self.trial.report(self.values[-1], step=epoch + 1)
            if self.trial.should_prune():
                raise optuna.TrialPruned
