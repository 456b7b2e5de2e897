"""Experiment trackers of a run: TensorBoard, MLflow, Weights & Biases."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import keras

from keras_dml import callbacks, data
from keras_dml.recipes import Recipe, building
from keras_dml.runs.folder import (
    METRICS,
    QUERIES,
    RECIPE,
    RESULT,
    SUMMARY,
    TENSORBOARD,
)
from keras_dml.runs.outcome import Outcome
from keras_dml.utils.arguments import check_choice, import_extra

TRACKERS = ("mlflow", "tensorboard", "wandb")
"""What a run can be logged to: names of modules, and of extras."""

FILES = (RECIPE, METRICS, RESULT, SUMMARY, QUERIES, "best.keras")
"""Files of a run that trackers keep."""


class Training(NamedTuple):
    """What is logged."""

    recipe: Recipe
    folder: Path
    model: keras.Model
    splits: data.DataSplits


def check_trackers(names: Sequence[str]) -> None:
    """Checks that trackers exist and can be imported.

    Raises:
        ImportError: If the package of a tracker is not installed.
        ValueError: If a tracker is unknown.
    """
    for name in names:
        check_choice("runs.train", "log", name, TRACKERS)
        import_extra(f"log={name!r}", name, name)


def trackers_of(
    names: Sequence[str], training: Training
) -> list[keras.callbacks.Callback]:
    """The callbacks that log a training, one for each name."""
    return [_MADE_BY[name](training) for name in dict.fromkeys(names)]


@contextmanager
def ended(
    made: Sequence[keras.callbacks.Callback],
) -> Iterator[Sequence[keras.callbacks.Callback]]:
    """Ends the tracked runs with what is done inside, also if it fails."""
    trackers = [x for x in made if isinstance(x, callbacks.Tracker)]
    try:
        yield made
    except BaseException as error:
        ordinary = isinstance(error, Exception)
        for tracker in trackers:
            tracker.finish("failed" if ordinary else "interrupted")
        raise
    for tracker in trackers:
        tracker.finish()


def log_outcome(
    made: Sequence[keras.callbacks.Callback], outcome: Outcome, folder: Path
) -> None:
    """Logs final metrics and the files of a run to all trackers."""
    for tracker in made:
        if isinstance(tracker, callbacks.Tracker):
            tracker.log_results(outcome.after)
            tracker.log_files(folder / name for name in FILES)
            if outcome.interrupted:
                tracker.finish("interrupted")


def _images(splits: data.DataSplits) -> data.Examples:
    """What figures are drawn of: never of test classes."""
    return splits.validation if len(splits.validation) else splits.train


def _tracker(
    kind: Callable[..., callbacks.Tracker], training: Training
) -> callbacks.Tracker:
    return kind(
        training.recipe.model_dump(mode="json"),
        name=training.recipe.name,
        images=_images(training.splits),
        every=training.recipe.evaluation.every,
        seed=training.recipe.seed,
        finish=False,
    )


def _tensorboard(training: Training) -> callbacks.EmbeddingTensorBoard:
    """The log for TensorBoard, with a batch of its own of all classes."""
    recipe, splits = training.recipe, training.splits
    batches = building.sampler(recipe, splits.train)
    if isinstance(batches, data.ClusterSampler):
        batches.set_phase("full", "all")
    if isinstance(batches, data.HardClassBalanced):
        batches.set_neighbors(None)
    if isinstance(batches, data.SurrogateSampler):
        batches.set_assignments([0] * len(splits.train))
    shape = training.model.input_shape
    pipeline = building.pipeline(recipe, splits.train, batches, shape)
    return callbacks.EmbeddingTensorBoard(
        training.folder / TENSORBOARD,
        _images(splits),
        batch=next(iter(pipeline)),
        every=recipe.evaluation.every,
        seed=recipe.seed,
    )


_MADE_BY: dict[str, Callable[[Training], keras.callbacks.Callback]] = {
    "mlflow": partial(_tracker, callbacks.MLflowTracker),
    "tensorboard": _tensorboard,
    "wandb": partial(_tracker, callbacks.WandbTracker),
}
