"""Training of what a recipe describes."""

import os
import time
from pathlib import Path
from typing import Any

import keras

from keras_dml import data, evaluation
from keras_dml.callbacks import (
    Checkpoint,
    EmbeddingTensorBoard,
    LearningRateMonitor,
    Recluster,
    RetrievalEvaluation,
)
from keras_dml.callbacks.tensorboard import check_installed
from keras_dml.recipes import Recipe, building
from keras_dml.runs.checks import check_splits
from keras_dml.runs.digest import digest
from keras_dml.runs.environment import environment
from keras_dml.runs.folder import (
    METRICS,
    TENSORBOARD,
    check_output,
    create_folder,
    load_model,
    write_outcome,
)
from keras_dml.runs.outcome import Outcome
from keras_dml.utils.files import atomic_file


def train(
    recipe: Recipe,
    folder: str | os.PathLike[str],
    verbose: int | str = "auto",
    overwrite: bool = False,
    tensorboard: bool = False,
) -> Outcome:
    """Trains what a recipe describes and measures it.

    The best epoch is chosen on classes held out of training; test classes
    are measured once before and once after training, the second time on
    the model as it was saved. Ctrl-C ends the training, and what was
    learned until then is saved and measured.

    Args:
        recipe: A complete recipe.
        folder: The run's folder; it is made once the data are read and
            the model is built, so that a mistake in either leaves nothing
            behind and replaces nothing. It receives the recipe, the
            metrics of every epoch, the best and the last model, the
            result, its value for each query and a one-page summary.
        verbose: As for `keras.Model.fit`.
        overwrite: Whether a run that is in the folder is replaced.
        tensorboard: Whether to log the training into `tensorboard` in the
            folder, see `EmbeddingTensorBoard`; it is the same training.

    Returns:
        What was measured.

    Raises:
        FileExistsError: If there is something in the folder already.
        ImportError: If `tensorboard` is set and it is not installed.
        ValueError: If the data cannot be measured, see `check_splits`.
    """
    check_output(folder, overwrite)
    if tensorboard:
        check_installed("tensorboard=True")
    keras.utils.set_random_seed(recipe.seed)
    keras.config.set_dtype_policy(recipe.precision)
    splits = building.splits(recipe)
    check_splits(recipe, splits)
    batches = building.sampler(recipe, splits.train)
    model = building.model(recipe, batches)
    before = measure(recipe, model, splits)
    folder = create_folder(folder, recipe, overwrite)
    boards = [_board(recipe, folder, model, splits)] if tensorboard else []
    fitted = _fit(recipe, folder, model, splits, batches, verbose, boards)
    outcome = Outcome(
        recipe=recipe,
        images={
            "train": len(splits.train),
            "validation": len(splits.validation),
            "test": len(splits.test),
        },
        before=dict(before),
        after=measure(recipe, load_model(folder), splits),
        test_set=digest(splits.test),
        environment=environment(),
        **fitted,
    )
    write_outcome(folder, outcome)
    return outcome


def measure(
    recipe: Recipe,
    model: keras.Model,
    splits: data.DataSplits,
    split: str = "test",
) -> evaluation.Results:
    """The recipe's metrics of a model on one of the splits.

    Test images are measured as the data set wants it: who is a query, who
    is searched among, and which camera's images do not count.
    """
    protocol, cameras = None, None
    if split == "test":
        protocol = evaluation.Protocol(splits.query_rows, splits.gallery_rows)
        cameras = splits.cameras
    return evaluation.evaluate(
        model,
        getattr(splits, split),
        metrics=recipe.evaluation.metrics,
        protocol=protocol,
        exclude=cameras,
    )


def _fit(
    recipe: Recipe,
    folder: Path,
    model: keras.Model,
    splits: data.DataSplits,
    batches: data.Sampler,
    verbose: int | str,
    boards: list[EmbeddingTensorBoard],
) -> dict[str, Any]:
    own = building.callbacks(recipe, splits.train, batches)
    division = [x for x in own if isinstance(x, Recluster)]
    monitor = recipe.evaluation.monitor
    validation = RetrievalEvaluation(
        splits.validation,
        every=recipe.evaluation.every,
        metrics=tuple(dict.fromkeys(("recall@1", "map@r", monitor))),
    )
    checkpoint = Checkpoint(folder, monitor=f"val_{monitor}")
    log = keras.callbacks.CSVLogger(str(folder / METRICS))
    start = time.perf_counter()
    interrupted = False
    try:
        model.fit(
            building.pipeline(recipe, splits.train, batches, model.input_shape),
            epochs=recipe.epochs,
            callbacks=[
                *own,
                validation,
                checkpoint,
                LearningRateMonitor(),
                log,
                *boards,
            ],
            verbose=verbose,
        )
    except KeyboardInterrupt:
        interrupted = True
        with atomic_file(folder / "last.keras") as partial:
            model.save(partial)
        for writer in (log, *boards):
            writer.on_train_end()  # Closes the file.
    seconds = {
        "training": time.perf_counter() - start,
        "evaluation": validation.seconds,
        "division": sum(d.seconds for c in division for d in c.divisions),
        "tensorboard": sum(board.seconds for board in boards),
    }
    steps = len(model.history.epoch) * batches.steps
    return {
        "best_epoch": checkpoint.best_epoch,
        "monitored": checkpoint.best,
        "divisions": _reports(division),
        "seconds": seconds,
        "images_per_second": _speed(steps * batches.batch_size, seconds),
        "interrupted": interrupted,
    }


def _reports(division: list[Recluster]) -> list[dict[str, Any]]:
    return [vars(d) for callback in division for d in callback.divisions]


def _speed(images: int, seconds: dict[str, float]) -> float | None:
    other = sum(seconds.values()) - seconds["training"]
    return images / (seconds["training"] - other) if images else None


def _board(
    recipe: Recipe, folder: Path, model: keras.Model, splits: data.DataSplits
) -> EmbeddingTensorBoard:
    """The log for TensorBoard, with a batch of its own of all classes."""
    batches = building.sampler(recipe, splits.train)
    if isinstance(batches, data.ClusterSampler):
        batches.set_phase("full", "all")
    shape = model.input_shape
    pipeline = building.pipeline(recipe, splits.train, batches, shape)
    return EmbeddingTensorBoard(
        folder / TENSORBOARD,
        splits.validation,
        batch=next(iter(pipeline)),
        every=recipe.evaluation.every,
        seed=recipe.seed,
    )
