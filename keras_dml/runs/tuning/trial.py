"""The training of one trial, measured on validation classes alone."""

import math
from pathlib import Path
from typing import Any

import keras

from keras_dml import callbacks, data
from keras_dml.recipes import Recipe, building
from keras_dml.runs.measuring import check_splits
from keras_dml.runs.training import validation_of
from keras_dml.utils.progress import waiting


class Judged(keras.callbacks.Callback):
    """Tells Optuna how a trial does, and ends it where that is not well.

    Args:
        trial: A trial of Optuna.
        monitor: The entry of the logs whose maximum is best.

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
    keras.utils.set_random_seed(recipe.seed)
    keras.config.set_dtype_policy(recipe.precision)
    check_splits(recipe, splits)
    batches = building.sampler(recipe, splits.train)
    model = building.model(recipe, batches)
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
