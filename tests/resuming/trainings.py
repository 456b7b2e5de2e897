"""Small trainings of methods, to be killed and resumed."""

import csv
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml import backbones, methods
from keras_dml.callbacks import (
    Checkpoint,
    LearningRateMonitor,
    Recluster,
    Resume,
    RetrievalEvaluation,
    SurrogateLabels,
)
from keras_dml.data import (
    ClassBalanced,
    ClusterSampler,
    SurrogateSampler,
    pipeline,
)
from keras_dml.distribution.workers import this_worker
from keras_dml.resuming.states import variables_of
from tests.conftest import blobs
from tests.methods.test_contract import ARGUMENTS

STEPS, EPOCHS = 3, 2

MARGIN = {"name": "margin", "seed": 1}


METHODS: dict[str, dict[str, Any]] = {
    name: {
        **arguments,
        **({} if name in ("abe", "bier", "hdc") else {"loss": MARGIN}),
    }
    for name, arguments in ARGUMENTS.items()
    if name != "whitening"  # It takes no steps in which it could be killed.
}
METHODS["dcml"]["num_learners"] = 2
METHODS["divide_and_conquer"]["num_learners"] = 2
METHODS["dreml"]["loss"] = None
METHODS["ensemble"]["bootstrap"] = True


class Copy(keras.callbacks.Callback):
    """Copies a folder at the start of a step, as a kill would leave it."""

    def __init__(self, folder: Path, target: Path, epoch: int, step: int):
        super().__init__()
        self.folder, self.target = folder, target
        self.at = (epoch, step)
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.at == (self._epoch, batch):
            shutil.copytree(self.folder, self.target)


def network() -> keras.Model:
    return backbones.small_convnet((16, 16, 1), filters=(4, 8))


def taught(name: str) -> dict[str, Any]:
    """The teacher of a method that has one."""
    if name != "distillation":
        return {}
    return {"teacher": methods.baseline(network(), embedding_dim=5)}


def train(
    name: str,
    folder: Path,
    *callbacks: keras.callbacks.Callback,
    epochs: int = EPOCHS,
    steps: int = STEPS,
    strategy: tf.distribute.Strategy | None = None,
    model: keras.Model | None = None,
) -> keras.Model:
    """Trains a method whose images are divided, drawn and flipped."""
    keras.utils.set_random_seed(3)
    images = blobs(6, 8)
    schedule = keras.optimizers.schedules.CosineDecay(1e-2, steps * epochs)
    strategy = strategy or tf.distribute.get_strategy()
    if model is None:
        with strategy.scope():
            model = methods.METHODS[name].value(
                network(), **METHODS[name], **taught(name)
            )
            model.compile(keras.optimizers.AdamW(schedule))
    sizes = {"classes_per_batch": 2, "images_per_class": 3}
    sampler: Any = ClassBalanced(images.labels, steps_per_epoch=steps, **sizes)
    method_callbacks: list[keras.callbacks.Callback] = []
    if name in ("divide_and_conquer", "dcml"):
        sampler = ClusterSampler(
            images.labels, num_learners=2, steps_per_epoch=steps, **sizes
        )
        method_callbacks = [Recluster(images, sampler, every=2)]
    if name == "mic":
        sampler = SurrogateSampler(
            images.labels, steps_per_epoch=steps, **sizes
        )
        method_callbacks = [SurrogateLabels(images, sampler, 4, every=2)]
    if name == "baseline":
        method_callbacks += [
            RetrievalEvaluation(blobs(3, 4, seed=1)),
            Checkpoint(folder, "val_recall@1"),
        ]
    views = {"num_views": 2 if model.momentum_encoder is not None else 1}
    batches = pipeline(images, sampler, size=16, flip=True, pad=2, **views)
    if this_worker(strategy).is_chief:
        method_callbacks.append(
            keras.callbacks.CSVLogger(str(folder / "metrics.csv"))
        )
    model.fit(
        batches,
        epochs=epochs,
        verbose=0,
        callbacks=[LearningRateMonitor(), *method_callbacks, *callbacks],
    )
    return model


def goes_on(
    name: str, folder: Path, strategy: tf.distribute.Strategy | None = None
) -> tuple[int, list[str]]:
    """Ends a training within an epoch, and goes on.

    It does so with the same model, as tracing takes most of the time, but
    one of which every variable is 0.

    Returns:
        The number of arrays compared with those of a training without
        interruption, and what is different.
    """
    whole, killed = folder / name, folder / f"{name}-killed"
    whole.mkdir(parents=True)
    copy = Copy(whole, killed, epoch=1, step=1)
    every = Resume(whole / "state", every=1)
    model = train(name, whole, copy, every, strategy=strategy)
    expected = bits(model)
    for variable in variables_of(model):
        variable.assign(keras.ops.zeros_like(variable))
    train(
        name, killed, Resume(killed / "state"), strategy=strategy, model=model
    )
    changed = different(expected, bits(model))
    changed += [] if rows(whole) == rows(killed) else ["metrics.csv"]
    return len(expected), changed


def bits(model: keras.Model) -> dict[str, Any]:
    """All results of a training, by name."""
    values = {
        f"{i} {v.path}": keras.ops.convert_to_numpy(v)
        for i, v in enumerate(variables_of(model))
    }
    logs = {
        k: np.array(v)
        for k, v in model.history.history.items()
        if not k.endswith("seconds")
    }
    return {**values, **logs}


def different(one: Any, two: Any) -> list[str]:
    """Names of results that differ in any bit."""
    assert len(one) == len(two)
    return [
        f"{a} / {b}"
        for a, b in zip(one, two, strict=True)
        if one[a].shape != two[b].shape or one[a].tobytes() != two[b].tobytes()
    ]


def rows(folder: Path) -> list[dict[str, str]]:
    """The rows of a log, without columns of seconds."""
    with (folder / "metrics.csv").open() as file:
        return [
            {k: v for k, v in row.items() if not k.endswith("seconds")}
            for row in csv.DictReader(file)
        ]
