"""Replicas against one device: losses, miners, methods and options of a step.

Each case is trained for three steps on one device and on replicas of one
machine. Losses are trained many at once, each on a part of the embedding of
its own, as tracing takes most of the time.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from keras_dml import MetricModel, backbones, losses, methods
from keras_dml.layers import FrozenBatchNormalization
from keras_dml.losses.distances import l2_normalize
from keras_dml.model.head import Head
from keras_dml.model.objective import Objective
from keras_dml.utils.serialization import parameters_of

BATCH, STEPS, CLASSES, DIM = 24, 3, 8, 6
LABELS = np.concatenate(
    [
        np.random.default_rng(step).permutation(np.repeat(np.arange(8), 3))
        for step in range(STEPS)
    ]
)
COUNT = BATCH * STEPS
MARGIN = {"name": "margin", "learn_beta": True, "mining": "all"}
NEEDED = {"num_classes": CLASSES, "class_counts": [5, 1, 3, 2, 9, 4, 3, 3]}
LOSSES: dict[str, Any] = {
    "contrastive": "contrastive",  # pairs
    "triplet, distance_weighted": {  # triplets that are drawn
        "name": "triplet",
        "mining": "distance_weighted",
    },
    "histogram": "histogram",  # statistics of a batch
    "barlow_twins": "barlow_twins",  # and of its dimensions
    # And of those before, in a variable.
    "dynamic_soft_margin": "dynamic_soft_margin",
    "proxy_anchor": {"name": "proxy_anchor", "num_classes": CLASSES},
    # Proxies, and a term of them alone.
    "soft_triple": {"name": "soft_triple", "num_classes": CLASSES},
    "margin, learned β": {
        "name": "margin",
        "learn_beta": True,
        "num_classes": CLASSES,
    },
    "memory": {
        "name": "cross_batch_memory",
        "loss": "contrastive",
        "size": 40,
    },
}
# Gradients of its own, a queue of a momentum network, updates of a part.
METHODS = ("bier", "diva", "divide_and_conquer")


@dataclass
class Case:
    """A model, and three batches in a row."""

    name: str
    build: Callable[[], MetricModel]
    x: Any
    y: Any
    weight: Any = None
    rate: float = 0.1
    num_parts: int = 1
    """Number of the losses that are trained at once."""


class Parts(Head):
    """A part of the embedding for each loss, of unit length by itself."""

    def __init__(self, count: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(
            count * DIM, dtype=keras.config.floatx()
        )
        self.count = count

    def build(self, features_shape: Any) -> None:
        super().build(features_shape)
        self.dense.build(features_shape)

    def embed(self, pooled: Any) -> dict[str, Any]:
        parts = self.dense(pooled)
        parts = keras.ops.reshape(parts, (-1, self.count, DIM))
        return {"embedding": l2_normalize(parts[:, 0]), "parts": parts}


class EachApart(Objective):
    """Computes every loss on its own part of the embedding, as a named term."""

    def __init__(self, losses_by_name: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metric_losses = {
            name: losses.get(x) for name, x in losses_by_name.items()
        }
        self.owners = [
            keras.layers.Layer(dtype=keras.config.floatx(), name=name)
            for name in losses_by_name
        ]
        self.terms = tuple(losses_by_name)

    def build(self, outputs_shape: Any) -> None:
        for owner, loss in zip(
            self.owners, self.metric_losses.values(), strict=True
        ):
            loss.build(owner, DIM)
            owner.built = True

    def call(self, outputs: Any, targets: Any) -> dict[str, Any]:
        return {
            name: loss.per_example(
                targets["label"], l2_normalize(outputs["parts"][:, k])
            )
            for k, (name, loss) in enumerate(self.metric_losses.items())
        }

    def after_step(self, outputs: Any, targets: Any) -> None:
        for k, loss in enumerate(self.metric_losses.values()):
            if loss.has_memory:
                parts = l2_normalize(outputs["parts"][:, k])
                loss.remember(targets["label"], parts)


def vectors() -> np.ndarray:
    values = np.random.default_rng(0).standard_normal((COUNT, 16))
    return values.astype(keras.config.floatx())


def perceptron(*layers: keras.layers.Layer) -> keras.Model:
    inputs = keras.Input((16,))
    x = keras.layers.Dense(12, activation="tanh")(inputs)
    for layer in layers:
        x = layer(x)
    return keras.Model(inputs, x)


def parted(losses_by_name: dict[str, Any], **options: Any) -> MetricModel:
    """One model of many losses."""
    inputs = keras.Input((16,))
    backbone = keras.Model(inputs, keras.ops.tanh(inputs))
    head = Parts(len(losses_by_name))
    return MetricModel(backbone, head, EachApart(losses_by_name), **options)


def apart(name: str, losses_by_name: dict[str, Any], label: Any) -> Case:
    return Case(
        name,
        lambda: parted(losses_by_name),
        vectors(),
        {"label": label},
        num_parts=len(losses_by_name),
    )


def loss_cases(every: bool) -> Iterator[Case]:
    """Loss cases, including labels that are not class ids."""
    cases = {**LOSSES}
    if every:
        cases |= {name: of_registry(name) for name in losses.LOSSES}
        cases |= {
            f"{loss}, {miner}": {"name": loss, "mining": miner}
            for miner in losses.mining.MINING
            for loss in ("triplet", "contrastive")
        }
    yield apart("losses", cases, LABELS)
    pairs = ["contrastive"]
    if every:
        pairs += ["triplet", "multi_sup_con"]
    sets = np.random.default_rng(1).random((COUNT, 5)) < 0.3
    yield apart("label sets", {x: x for x in pairs}, sets)
    table = LABELS.reshape(STEPS, BATCH)
    relations = (table[:, :, None] == table[:, None, :]).astype("int64")
    relations[:, :3, 5:9] = -1  # Neither.
    relations[:, 5:9, :3] = -1
    rows = relations.reshape(COUNT, BATCH)
    yield apart("relations", {x: x for x in pairs}, rows)


def of_registry(name: str) -> dict[str, Any]:
    parameters = parameters_of(losses.LOSSES[name].value).values()
    needed = {
        p.name: NEEDED[p.name] for p in parameters if p.default is p.empty
    }
    return {"name": name, **needed}


def options() -> Case:
    """Options of a training step besides the loss."""

    def build() -> MetricModel:
        norms = keras.layers.BatchNormalization(), FrozenBatchNormalization()
        several = {
            "contrastive": {"weight": 0.5},
            "proxy_anchor": {"num_classes": CLASSES},
            "xbm": {
                "name": "cross_batch_memory",
                "loss": "triplet",
                "size": 40,
            },
            # Of 60 classes eight are in a batch.
            "arc_face": {"num_classes": 60, "class_share": 0.5},
        }
        return methods.baseline(
            perceptron(*norms), embedding_dim=DIM, loss=several
        )

    weight = np.random.default_rng(2).uniform(0, 2, COUNT)
    return Case("options", build, vectors(), {"label": LABELS}, weight)


def method_cases(every: bool) -> Iterator[Case]:
    """Methods with non-default arguments."""
    from tests.methods.test_contract import ARGUMENTS

    for name in methods.METHODS if every else METHODS:
        arguments = {**ARGUMENTS[name], "loss": MARGIN}
        arguments.pop("view", None)
        if name == "baseline":
            arguments["loss"] = {**MARGIN, "mining": "distance_weighted"}
        if name == "divide_and_conquer":
            arguments |= {"update": "active", "num_learners": 2}
        # The weights of BIER's small groups run away at a higher rate.
        yield of_method(name, arguments, 0.01 if name == "bier" else 0.05)


def of_method(name: str, arguments: dict[str, Any], rate: float) -> Case:
    def build() -> MetricModel:
        backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
        return methods.METHODS[name].value(backbone, **arguments)

    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 16, 16, 1))
    x: Any = pixels.astype(keras.config.floatx())
    if name == "diva":
        x = {"image": x, "image2": x[:, :, ::-1]}
    targets = {
        "label": LABELS,
        "index": np.arange(COUNT),
        "learner": np.repeat(np.arange(STEPS) % 2, BATCH),
        "surrogate": np.arange(COUNT) % 4,
    }
    if name == "distillation":
        rng = np.random.default_rng(3)
        targets["teacher"] = rng.normal(size=(COUNT, 6)).astype("float32")
    return Case(name, build, x, targets, rate=rate)


def train(
    case: Case, strategy: tf.distribute.Strategy, eager: bool
) -> tuple[MetricModel, list[np.ndarray]]:
    """The trained model, and its weights before."""
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = case.build()
        model.compile(
            keras.optimizers.SGD(case.rate),
            jit_compile=False,
            run_eagerly=eager,
        )
    before = model.get_weights()
    data = (case.x, case.y, *([] if case.weight is None else [case.weight]))
    batches = tf.data.Dataset.from_tensor_slices(data).batch(
        BATCH, drop_remainder=True
    )
    model.fit(batches, verbose=0)
    return model, before


def check_equal(
    case: Case,
    replicas: tf.distribute.Strategy,
    loss_error: float,
    update_error: float,
    eager: bool = False,
) -> None:
    """Compares losses, updates, queues, counters and generators' states.

    Errors are relative: of a loss's mean over three steps, and of the norm of
    a variable's update by them.
    """
    one, before = train(case, tf.distribute.get_strategy(), eager)
    many, same = train(case, replicas, eager)
    for name, (expected,) in one.history.history.items():
        error = abs(many.history.history[name][0] - expected)
        assert error <= loss_error * max(abs(expected), 1e-12), (case, name)
    for variable, start, start_of_many, a, b in zip(
        one.weights, before, same, one.get_weights(), many.get_weights(),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_array_equal(start, start_of_many)
        if a.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        is_parted = variable.path.startswith("parts")
        count = case.num_parts if is_parted else 1
        columns = [np.split(x, count, -1) if count > 1 else [x]
                   for x in (b - a, a - start)]  # fmt: skip
        for number, (error, update) in enumerate(zip(*columns, strict=True)):
            limit = update_error * np.linalg.norm(update)
            assert np.linalg.norm(error) <= limit, (
                case, variable.path, number
            )  # fmt: skip
    for a, b in zip(
        one.objective.seed_states(), many.objective.seed_states(), strict=True
    ):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def use_logical_devices(count: int) -> list[str]:
    """Sets the number of logical CPUs; a process can do so only once."""
    # A graph that runs three times is not worth optimizing.
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": True}
    )
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        device, [tf.config.LogicalDeviceConfiguration()] * count
    )
    return [f"CPU:{i}" for i in range(count)]
