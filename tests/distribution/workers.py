"""One of two workers, or one process that does the same alone.

    python -m tests.distribution.workers FOLDER INDEX PORT PORT
    python -m tests.distribution.workers FOLDER 0

writes what training did to FOLDER/INDEX-of-WORKERS.npz.
"""

# ruff: noqa: E402 (A strategy of workers comes first.)

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

folder, index, ports = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
strategy = tf.distribute.get_strategy()
on_jax = keras.backend.backend() == "jax"
hosts = [f"127.0.0.1:{port}" for port in ports]
if ports and on_jax:
    import jax

    # As docs/guides/devices.md says. On CPUs, an exchange of the processes
    # could overtake a step.
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.distributed.initialize(hosts[0], len(hosts), index)
    keras.distribution.set_distribution(keras.distribution.DataParallel())
elif ports:
    task = {"type": "worker", "index": index}
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": hosts}, "task": task}
    )
    # Before anything else asks TensorFlow for its devices.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

from keras_dml import callbacks, data, methods, recipes, runs
from keras_dml.distribution.workers import done_by_chief
from tests.distribution.equality import LABELS, perceptron, vectors

# A graph that runs three times is not worth optimizing.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

found: dict[str, Any] = {}
starts: dict[int, list[np.ndarray]] = {}


class Watched(data.ArraySet):
    """Records the first number of each row that is read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.read: list[float] = []
        super().__init__(*args, **kwargs)

    def inputs(self, rows: Any) -> Any:
        x = super().inputs(rows)
        self.read += x[:, 0].tolist()
        return x


def kept(name: str, model: Any, logs: dict[str, list[float]]) -> None:
    for key, values in logs.items():
        found[f"logs/{name}/{key}"] = np.array(values)
    for k, weight in enumerate(model.get_weights()):
        found[f"weights/{name}/{k}"] = weight
    for k, weight in enumerate(starts[id(model)]):
        found[f"starts/{name}/{k}"] = weight


def made(make: Callable[[], Any]) -> Any:
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = make()
        jit = "auto" if on_jax else False
        model.compile(keras.optimizers.Adam(0.01), jit_compile=jit)
    starts[id(model)] = model.get_weights()
    return model


def baseline(loss: Any) -> Any:
    return made(
        lambda: methods.baseline(perceptron(), embedding_dim=6, loss=loss)
    )


def losses() -> None:
    for name, loss in {
        "margin": {"name": "margin", "learn_beta": True},
        # Of 60 classes eight are in a batch.
        "share": {"name": "arc_face", "num_classes": 60, "class_share": 0.5},
    }.items():
        model = baseline(loss)
        before = model.objective.get_weights()
        batches = tf.data.Dataset.from_tensor_slices((vectors(), LABELS))
        # Neither 21 nor the 9 that are left can be halved, as JAX asks for.
        batches = batches.batch(24 if on_jax else 21)
        logs = model.fit(batches, verbose=0).history
        kept(name, model, logs)
    (start,), (table,) = before, model.objective.get_weights()
    found["drawn"] = np.any(table != start, axis=1)


def divide_and_conquer() -> None:
    """The chief alone divides and measures; all workers embed for it."""
    model = made(
        lambda: methods.divide_and_conquer(
            perceptron(), embedding_dim=8, num_learners=2, loss="contrastive"
        )
    )
    sampler = data.ClusterSampler(
        LABELS,
        num_learners=2,
        classes_per_batch=4,
        images_per_class=2,
        steps_per_epoch=3,
    )
    training = data.ArraySet(vectors(), LABELS)
    held_out = Watched(vectors() + 1, LABELS)
    held_out.read.clear()
    logs = model.fit(
        data.pipeline(training, sampler),
        epochs=3,
        verbose=0,
        callbacks=[
            callbacks.Recluster(training, sampler, every=1),
            callbacks.RetrievalEvaluation(held_out),
        ],
    ).history
    kept("divide_and_conquer", model, logs)
    found["clusters"] = sampler.assignments
    found["own/held out"] = np.array(held_out.read)


def planned() -> None:
    """Each worker reads only its own rows of planned batches."""
    training = Watched(vectors(), LABELS)
    sampler = data.ClassBalanced(LABELS, batch_size=8, images_per_class=2)
    batches = data.pipeline(training, sampler)
    model = baseline("contrastive")
    training.read.clear()
    logs = model.fit(batches, verbose=0).history
    kept("planned", model, logs)
    found["own/planned"] = np.array(training.read)
    found["own/plan"] = vectors()[sampler.plan(0), 0]


def resumed() -> None:
    """SIGTERM of the last worker ends all in one step; all go on from it."""
    training = data.ArraySet(vectors(), LABELS)
    state = callbacks.Resume(folder / f"state-{len(ports)}")
    begun: list[int] = []

    def fit(name: str, *more: Any, end_at: int | None = None) -> None:
        sampler = data.ClassBalanced(LABELS, batch_size=8, images_per_class=2)
        model = baseline({"name": "margin", "seed": 1})

        def begin(batch: int, logs: Any) -> None:
            if on_jax:
                model.jax_state_sync()
            begun.append(int(model.optimizer.iterations.numpy()))
            if begun[-1] == end_at and index == max(0, len(ports) - 1):
                os.kill(os.getpid(), signal.SIGTERM)

        steps = keras.callbacks.LambdaCallback(on_train_batch_begin=begin)
        logs = model.fit(
            data.pipeline(training, sampler),
            epochs=2,
            verbose=0,
            callbacks=[steps, *more],
        ).history
        for k, value in enumerate([*model.get_weights(), *logs.values()]):
            found[f"own/{name}/{k}"] = np.array(value)

    fit("whole")
    begun.clear()
    try:
        fit("ended", state, end_at=1)
    except SystemExit as error:
        found["own/status"] = np.array(error.code)
    fit("resumed", state)
    found["own/begun"] = np.array(begun)


def arrays() -> None:
    """Balanced by the chief's seed; without balance refused if shuffled."""
    model = baseline("contrastive")
    np.random.seed(index)  # Workers draw apart.
    if index:
        np.random.random()
    logs = model.fit(vectors(), LABELS, batch_size=12, verbose=0).history
    kept("arrays", model, logs)
    if not ports:
        return
    for name, action in {
        "shuffled": lambda: model.fit(vectors(), LABELS, balanced=False),
        "predict": lambda: model.predict(vectors()),
        "odd": lambda: model.train_on_batch(vectors()[:5], LABELS[:5]),
        "run": lambda: runs.train(
            recipes.load("quickstart"), folder / "run", strategy=strategy
        ),
    }.items():
        try:
            action()
        except ValueError as error:
            found[f"error/{name}"] = np.array(str(error))


def told() -> None:
    """The chief's results and errors reach the other workers."""
    words = {"a": [1, 2.5, "ä"], "b": None}
    assert done_by_chief(lambda: words, strategy) == words

    def fails() -> None:
        raise OSError("the disk is full")

    try:
        done_by_chief(fails, strategy)
    except (OSError, RuntimeError) as error:
        found["own/error"] = np.array(f"{type(error).__name__}: {error}")


def main() -> None:
    for part in (
        losses,
        divide_and_conquer,
        planned,
        resumed,
        arrays,
        told,
    ):
        part()
    np.savez(folder / f"{index}-of-{max(1, len(ports))}.npz", **found)


if __name__ == "__main__":
    main()
