"""Training of recipes."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_dml import callbacks, data
from keras_dml.callbacks.clustering import Clustering
from keras_dml.data.copies import leaks
from keras_dml.data.hashing import digest
from keras_dml.data.samplers.base import Assigned
from keras_dml.distribution.strategies import (
    count_replicas,
    current_strategy,
)
from keras_dml.distribution.workers import this_worker
from keras_dml.evaluation import Results
from keras_dml.methods import ProjectionModel
from keras_dml.model import MetricModel
from keras_dml.model.warnings import warn_once
from keras_dml.recipes import Recipe, load
from keras_dml.recipes.schema import Training
from keras_dml.runs.baselines import Baseline, measure_before
from keras_dml.runs.folder import (
    METRICS,
    STATE,
    RunLog,
    check_output,
    check_same_recipe,
    create_folder,
    is_finished,
    load_outcome,
    write_outcome,
)
from keras_dml.runs.measuring import check_splits, measure
from keras_dml.runs.outcome import Outcome, verdicts
from keras_dml.runs.tracking import Trackers, check_trackers
from keras_dml.utils.files import one_at_a_time, sweep, write_atomically
from keras_dml.utils.models import is_untrained, read_model
from keras_dml.utils.progress import printable
from keras_dml.utils.provenance import environment, hardware
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import FloatArray

logger = logging.getLogger(__name__)

REFIT = "refit"
"""Subfolder of a run for the training on all classes."""


def train(
    recipe: Recipe,
    folder: str | os.PathLike[str],
    verbose: int | str = "auto",
    overwrite: bool = False,
    log: Sequence[str] = (),
    strategy: tf.distribute.Strategy | None = None,
    resume: bool = False,
    save_every: str | int | None = None,
) -> Outcome:
    """Trains a recipe and measures the result.

    The best epoch is chosen on classes held out of training. Test classes are
    measured once before and once after training, the second time with the saved
    model. Ctrl-C ends the training early; the model at that time is saved and
    measured. Until training is finished, its state is kept in `state` in the
    folder; see `callbacks.Resume`.

    With `refit` in the recipe, the model is then trained again on all training
    classes, for the chosen number of epochs, as a run in `refit` in the folder.
    The outcome also contains the metrics of this run.

    Args:
        recipe: A complete recipe.
        folder: The folder of the run. It is created after the data are read,
            the model is built, and both are checked against the augmentation,
            so a mistake in any of these does not leave or replace any files.
            The folder receives the recipe, the metrics of every epoch, the best
            and the last model, the result, its values for each query and a
            one-page summary.
        verbose: As for `keras.Model.fit`. Unless it is 0, lines on the data,
            the network, the device and what is measured come first.
        overwrite: Whether to replace an existing run in the folder.
        log: Trackers to log the training to: "mlflow", "wandb", "tensorboard";
            TensorBoard's log and projector are `tensorboard` in the folder.
            Trackers do not affect the training.
        strategy: The strategy to train with, as returned by `use_devices`, of
            one machine.
        resume: Whether to continue an existing run in the folder from its last
            state. If the run is finished, its outcome is read; if there is no
            run, a new one begins.
        save_every: How often to save the state within epochs, as for `every` of
            `callbacks.Resume`.

    Returns:
        The outcome.

    Raises:
        FileExistsError: If the folder already contains something.
        BlockingIOError: If another run is using the folder.
        ImportError: If the package of one of `log` is not installed.
        RecipeError: If the run to continue has a different recipe.
        SystemExit: On SIGTERM, with status 75, after the state was written.
        ValueError: If the data cannot be measured, see `check_splits`; if a run
            cannot be resumed from its state, see `callbacks.Resume`; if the
            strategy is of several machines; or if `log` contains an unknown
            name.
    """
    check_trackers(log)
    strategy = strategy or current_strategy()
    workers = this_worker(strategy).count
    if workers > 1:
        raise ValueError(
            "`strategy` of train must be of one machine. Received: one of "
            f"{workers} workers. Train the recipe's model in a cluster by "
            "`MetricModel.fit`."
        )
    folder = Path(folder)
    identity = {"recipe": recipe.model_dump(mode="json")}
    states = callbacks.Resume(
        folder / STATE, every=save_every, identity=identity
    )

    if resume:
        check_same_recipe(folder, recipe)
    if resume and is_finished(folder):
        outcome = load_outcome(folder)
    else:
        if not resume:
            check_output(folder, overwrite)
        recipe.check_files()
        with warn_once(set()):
            outcome = _train(
                recipe, folder, resume and states.has_state, verbose,
                overwrite or resume, log, strategy, states,
            )  # fmt: skip
    epochs = 0 if outcome.interrupted else outcome.best_epoch
    if not recipe.refit or not epochs:
        return outcome
    on_all = {
        "name": f"{recipe.name}-{REFIT}",
        "train_on": "all",
        "refit": False,
        # Schedules of the learning rate keep the length of the first.
        "stop_after": epochs,
    }
    again = train(
        recipe.model_copy(update=on_all), folder / REFIT, verbose, overwrite,
        log, strategy, resume or (folder / REFIT).exists(), save_every,
    )  # fmt: skip
    outcome = replace(outcome, refit=dict(again.after))
    write_outcome(folder, outcome)
    return outcome


def _train(
    recipe: Recipe,
    folder: Path,
    goes_on: bool,
    verbose: int | str,
    overwrite: bool,
    log: Sequence[str],
    strategy: tf.distribute.Strategy,
    states: callbacks.Resume,
) -> Outcome:
    def tell(*lines: str) -> None:
        for line in lines if verbose else ():
            print(printable(line), flush=True)

    tell("Reading the data …")
    start = time.perf_counter()
    network, splits, sampler, model = _build_parts(recipe, strategy)
    for leak in leaks(splits):
        logger.warning("%s", leak)
    data_seconds = time.perf_counter() - start
    replicas = count_replicas(strategy)
    tell(*before_training(recipe, splits, model, replicas))
    start = time.perf_counter()
    has_start = not (
        is_untrained(network) or isinstance(model, ProjectionModel)
    )
    if recipe.guard and not (has_start and len(splits.validation)):
        raise ValueError(
            "`guard` of a recipe requires a pretrained network to go back to, "
            f"and held-out classes. Received: {recipe.backbone.name} with "
            f"{recipe.method.name}, {len(splits.validation)} validation "
            "examples. Leave out `guard`."
        )
    if recipe.backbone.stores_features:
        tell("Computing the features of the frozen layers …")
    training = recipe.training(model, sampler, splits, with_test=True)
    seconds = time.perf_counter() - start
    if training.validation is not None:
        training.validation.start = has_start  # A random start is not chosen.
    start = time.perf_counter()
    progress = _Progress()
    if not goes_on:
        tell("Measuring before training …")
        progress.compare_with(
            *measure_before(recipe, network, training, splits)
        )
    progress.start_seconds = time.perf_counter() - start
    with one_at_a_time(folder, "run"), ExitStack() as exits:
        if goes_on:
            sweep(folder)
        else:
            create_folder(folder, recipe, overwrite)
        rows = RunLog(folder / METRICS)
        trackers = exits.enter_context(
            # Figures never show test classes.
            Trackers(log, recipe, folder, splits.validation or splits.train)
        )
        checkpoint, entries = _fit(
            training, folder, recipe, verbose, progress, states,
            [rows, *trackers.callbacks],
        )  # fmt: skip
        if rows.error is not None:
            entries["unsaved"][METRICS] = f"the end: {rows.error}"
        if training.splits is not splits:
            entries["seconds"]["features"] = seconds
        entries["seconds"]["data"] = data_seconds
        entries["seconds"]["start"] = progress.start_seconds
        tell("Measuring after training …")
        outcome = _measure_outcome(
            recipe, training, splits, checkpoint, progress, entries
        )
        write_outcome(folder, outcome)
        trackers.log_outcome(outcome)
        if is_finished(folder):
            shutil.rmtree(states.folder, ignore_errors=True)
    return outcome


def _build_parts(
    recipe: Recipe, strategy: tf.distribute.Strategy
) -> tuple[keras.Model, data.DataSplits, data.Sampler, MetricModel]:
    """The network of a recipe, its data, their sampler, and the model."""
    keras.utils.set_random_seed(recipe.seed)
    keras.config.set_dtype_policy(recipe.precision)
    with strategy.scope():
        network = recipe.backbone.build()  # May fail, and needs no data.
    splits = recipe.data.load(recipe.seed, recipe.train_on)
    check_splits(recipe, splits)
    sampler = recipe.method.sampler(splits.train, recipe.batches, recipe.seed)
    with strategy.scope():
        model = recipe.build(sampler, network)
    return network, splits, sampler, model


def rehearse(paths: Sequence[str], output: str) -> None:
    """Trains each recipe for a step; writes what fails, by path, as JSON."""
    failures = {}
    for path in paths:
        try:
            recipe = load(path)
            recipe.check_files()
            _, splits, sampler, model = _build_parts(recipe, current_strategy())
            # Callbacks find these in training, with embeddings of all images.
            if isinstance(sampler, Assigned):
                sampler.set_assignments(np.zeros(len(sampler.labels), int))
            elif isinstance(sampler, data.HardClassBalanced):
                sampler.set_neighbors(None)
            # Images even for a frozen backbone: features of all take long.
            batches = recipe.augmentation.pipeline(
                recipe.method.number_classes(splits.train),
                sampler,
                model.input_shape,
                recipe.seed,
            )
            model.train_on_batch(*next(iter(batches)))
        except Exception as error:
            traceback.print_exc()
            failures[path] = f"{type(error).__name__}: {error}"
        keras.backend.clear_session()
    write_atomically(output, json.dumps(failures))


def before_training(
    recipe: Recipe, splits: data.DataSplits, model: keras.Model, replicas: int
) -> list[str]:
    """Lines on the data, the network, the device and what is measured."""
    evaluation, parts = recipe.evaluation, []
    for role in ("train", "validation", "test"):
        examples, part = getattr(splits, role), "none"
        if len(examples):
            count = examples.num_classes
            things = "classes" if count > 1 else "class"
            things = "labels" if examples.has_label_sets else things
            part = f"{count:,} {things}, {len(examples):,} examples"
        parts.append(f"{role} {part}")
    every = "each epoch"
    if evaluation.every != 1:
        every = f"every {evaluation.every} epochs"
    monitored = (
        f"val_{evaluation.monitor} on the validation images after {every}, "
        "to choose the epoch"
        if len(splits.validation)
        else "nothing while training, as no classes are held out"
    )
    dim = model.compute_output_shape(model.input_shape)[-1]
    devices = f", {replicas} replicas" if replicas > 1 else ""
    when = "before and after training"
    if not is_untrained(model.backbone):
        when = "of the untouched network and after training"
    return [
        f"Data: {recipe.source}; {'; '.join(parts)}",
        f"Network: {recipe.backbone.name} with {recipe.method.name}, "
        f"{model.count_params():,} weights, embeddings of "
        f"{dim} dimensions",
        f"Device: {hardware()}{devices}, {recipe.precision}",
        f"Measured: {monitored}; {', '.join(evaluation.metrics)} on the test "
        f"images, which are never trained on, {when}",
    ]


class _Progress(keras.callbacks.Callback):
    """Results before training, and its duration, for a resumed run too."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, float] = {}
        self.per_query: dict[str, FloatArray] = {}
        self.baseline: dict[str, Any] | None = None
        self.start_seconds = 0.0
        self._earlier = 0.0
        self._began = time.perf_counter()

    def compare_with(self, results: Results, baseline: Baseline | None) -> None:
        """Sets the results without training, and their baseline."""
        self.before = dict(results)
        self.per_query = results.per_query
        self.baseline = None if baseline is None else asdict(baseline)

    @property
    def seconds(self) -> float:
        """Duration of training so far, without lost epochs."""
        return self._earlier + time.perf_counter() - self._began

    def on_train_begin(self, logs: Any = None) -> None:
        self._began = time.perf_counter()

    def get_state(self) -> dict[str, Any]:
        return {
            "before": self.before,
            "baseline": self.baseline,
            "start_seconds": self.start_seconds,
            "per_query": self.per_query,
            "seconds": self.seconds,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.before = state["before"]
        self.baseline = state["baseline"]
        self.start_seconds = state["start_seconds"]
        self.per_query = state["per_query"]
        self._earlier = state["seconds"]


def _measure_outcome(
    recipe: Recipe,
    training: Training,
    splits: data.DataSplits,
    checkpoint: callbacks.Checkpoint,
    progress: _Progress,
    entries: dict[str, Any],
) -> Outcome:
    """The outcome, with the best model measured on the test set."""
    start = time.perf_counter()
    name, best = _best(checkpoint, training.model)
    after = measure(recipe, best, training.splits)
    entries["seconds"]["test"] = time.perf_counter() - start
    # Both were measured on the same queries.
    before = replace(
        after, _values=progress.before, per_query=progress.per_query
    )
    return Outcome(
        recipe=recipe,
        images={
            role: len(getattr(splits, role))
            for role in ("train", "validation", "test")
        },
        before=progress.before,
        baseline=progress.baseline,
        after=after,
        verdicts=verdicts(before, after),
        test_set=digest(splits.test),
        environment=environment(),
        measured=name,
        **entries,
    )


def _best(
    checkpoint: callbacks.Checkpoint, model: keras.Model
) -> tuple[str, keras.Model]:
    """The name of the model to measure, and the model as it was saved."""
    if checkpoint.best_epoch is not None:
        return "best.keras", read_model(checkpoint.folder / "best.keras")
    if checkpoint.last is not None:
        name = f"last.keras of {checkpoint.last}"
        return name, read_model(checkpoint.folder / "last.keras")
    return "the model in memory, which has no file", model


def _fit(
    training: Training,
    folder: Path,
    recipe: Recipe,
    verbose: int | str,
    progress: _Progress,
    states: callbacks.Resume,
    writers: Sequence[keras.callbacks.Callback],
) -> tuple[callbacks.Checkpoint, dict[str, Any]]:
    """Trains; returns the checkpoint, and entries of the outcome."""
    validation = training.validation
    monitor = f"val_{training.monitor}" if validation else None
    start = validation if validation and validation.start else None
    guard = None
    if recipe.guard and start is not None:
        guard = callbacks.Guard(start, training.splits.train, str(monitor))
    checkpoint = callbacks.Checkpoint(folder, monitor, start, guard)
    interrupted = False

    def stop(epoch: int, logs: Any) -> None:
        if recipe.stop_after and epoch + 1 >= recipe.stop_after:
            training.model.stop_training = True

    try:
        training.fit(
            recipe.epochs,
            [
                *([guard] if guard else []),
                checkpoint,
                callbacks.LearningRateMonitor(),
                *writers,
                progress,
                states,
                keras.callbacks.LambdaCallback(on_epoch_end=stop),
            ],
            verbose,
        )
    except KeyboardInterrupt:
        if not progress.before:  # No state was read yet.
            raise
        interrupted = True
        checkpoint.save_last("the moment of Ctrl-C")
        for writer in writers:
            writer.on_train_end()
    clusterings = [x for x in training.callbacks if isinstance(x, Clustering)]
    divisions = [division for x in clusterings for division in x.divisions]
    evaluation = validation.seconds if validation else 0
    division = sum(x.seconds for x in divisions)
    for x in training.callbacks:
        if isinstance(x, callbacks.HardClasses):
            division += x.seconds
    seconds = {
        "training": progress.seconds,
        "evaluation": evaluation,
        "division": division,
    }
    sampler = training.sampler
    steps = len(training.model.history.epoch) * sampler.steps
    rate = None
    if steps:
        rest = seconds["training"] - evaluation - division
        rate = steps * sampler.batch_size / rest
    return checkpoint, {
        "best_epoch": checkpoint.best_epoch,
        "share": checkpoint.share,
        "monitored": checkpoint.best,
        "divisions": [vars(x) for x in divisions],
        "seconds": seconds,
        "images_per_second": rate,
        "interrupted": interrupted,
        "unsaved": dict(checkpoint.unsaved),
    }
