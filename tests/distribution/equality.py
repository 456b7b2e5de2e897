"""R replicas against one: every loss, every miner, every method.

    python -m tests.distribution.equality R [FAMILY…] [--eager] [--some]
    python -m tests.distribution.float64 R [FAMILY…] [--eager] [--some]

train each case for three steps on one replica, and on R of the logical
devices of one machine, and print a line of JSON for it: in float32, as users
train, and in float64, which leaves no room for what is not rounding. Losses
are trained many at once, each with a part of the embedding to itself: what
takes time is tracing, which `--eager` goes without. `--some` leaves out what
differs from the others by its formula alone.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
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
SOME = (
    "contrastive",  # pairs
    "triplet, distance_weighted",  # triplets that are drawn
    "histogram",  # statistics of a batch
    "barlow_twins",  # and of its dimensions
    "dynamic_soft_margin",  # and of those before, in a variable
    "proxy_anchor",  # proxies
    "soft_triple",  # and a term of them alone
    "margin, learned β",
    "memory",
    "contrastive, label sets",
    "contrastive, relations",
    "bier",  # gradients of its own
    "diva",  # a queue of a momentum network
    "divide_and_conquer",  # updates of some variables
)


@dataclass
class Difference:
    """How far R replicas are from one."""

    family: str
    name: str
    loss: float
    """Relative, of the mean over three steps."""
    update: float
    """Of a variable over three steps, the norm of the difference relative to
    the norm of the update; the worst variable's."""
    variable: str
    same_integers: bool
    """Whether queues, counters and states of generators are the same."""


@dataclass
class Case:
    """What is trained: a model, and three batches in a row."""

    name: str
    make: Callable[[], MetricModel]
    x: Any
    y: Any
    weight: Any = None
    rate: float = 0.1
    parts: tuple[str, ...] = ()
    """Names of the losses that are trained at once."""


@dataclass
class Trained:
    """What training did."""

    names: list[str]
    before: list[np.ndarray]
    after: list[np.ndarray]
    logs: dict[str, float]
    seeds: list[np.ndarray]


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
    """Every loss on a part of its own, and a term by its name."""

    def __init__(self, given: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metric_losses = {name: losses.get(x) for name, x in given.items()}
        self.owners = [
            keras.layers.Layer(dtype=keras.config.floatx(), name=name)
            for name in given
        ]
        self.terms = tuple(given)

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


def images() -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 256, (COUNT, 16, 16, 1))
    return values.astype(keras.config.floatx())


def perceptron(*layers: keras.layers.Layer) -> keras.Model:
    inputs = keras.Input((16,))
    x = keras.layers.Dense(12, activation="tanh")(inputs)
    for layer in layers:
        x = layer(x)
    return keras.Model(inputs, x)


def parted(given: dict[str, Any], **options: Any) -> MetricModel:
    """One model of many losses."""
    inputs = keras.Input((16,))
    backbone = keras.Model(inputs, keras.ops.tanh(inputs))
    return MetricModel(backbone, Parts(len(given)), EachApart(given), **options)


def apart(given: dict[str, Any], some: bool, **targets: Any) -> Case:
    given = {k: v for k, v in given.items() if not some or k in SOME}
    return Case(
        "apart", lambda: parted(given), vectors(), targets, parts=tuple(given)
    )


def baseline(name: str, loss: Any, *layers: Any, **changes: Any) -> Case:
    def make() -> MetricModel:
        # A layer belongs to one model.
        copies = [x.from_config(x.get_config()) for x in layers]
        return methods.baseline(
            perceptron(*copies), embedding_dim=DIM, loss=loss
        )

    case = {"x": vectors(), "y": {"label": LABELS}, **changes}
    return Case(name, make, **case)


def all_losses(some: bool) -> Iterator[Case]:
    given = {name: of_registry(name) for name in losses.LOSSES}
    given["margin, learned β"] = {
        "name": "margin",
        "learn_beta": True,
        "num_classes": CLASSES,
    }
    given["memory"] = {
        "name": "cross_batch_memory",
        "loss": "contrastive",
        "size": 40,
    }
    yield apart(given, some, label=LABELS)


def of_registry(name: str) -> dict[str, Any]:
    values = {
        "num_classes": CLASSES,
        "class_counts": [5, 1, 3, 2, 9, 4, 3, 3],
    }
    found = parameters_of(losses.LOSSES[name].value).values()
    needed = {p.name: values[p.name] for p in found if p.default is p.empty}
    return {"name": name, **needed}


def all_miners(some: bool) -> Iterator[Case]:
    given = {
        f"{loss}, {miner}": {"name": loss, "mining": miner}
        for miner in losses.mining.MINING
        for loss in ("triplet", "contrastive")
    }
    yield apart(given, some, label=LABELS)


def other_labels(some: bool) -> Iterator[Case]:
    """Labels that are no class ids."""
    given = {x: x for x in ("contrastive", "triplet", "multi_sup_con")}
    sets = np.random.default_rng(1).random((COUNT, 5)) < 0.3
    yield apart({f"{x}, label sets": x for x in given}, some, label=sets)
    table = LABELS.reshape(STEPS, BATCH)
    relations = (table[:, :, None] == table[:, None, :]).astype("int64")
    relations[:, :3, 5:9] = -1  # Neither.
    relations[:, 5:9, :3] = -1
    rows = relations.reshape(COUNT, BATCH)
    yield apart({f"{x}, relations": x for x in given}, some, label=rows)


def all_options(some: bool = False) -> Iterator[Case]:
    """What a step has besides a loss."""
    weight = np.random.default_rng(2).uniform(0, 2, COUNT)
    several = {
        "contrastive": {"weight": 0.5},
        "proxy_anchor": {"num_classes": CLASSES},
        "xbm": {"name": "cross_batch_memory", "loss": "triplet", "size": 40},
        # Of 60 classes eight are in a batch.
        "arc_face": {"num_classes": 60, "class_share": 0.5},
    }
    yield baseline(
        "several losses, a share of the classes, sample weights",
        several,
        weight=weight,
    )
    yield baseline(
        "batch normalization, synchronized and frozen",
        "contrastive",
        keras.layers.BatchNormalization(),
        FrozenBatchNormalization(),
    )


def all_methods(some: bool) -> Iterator[Case]:
    """Each method with arguments that are no defaults."""
    from tests.methods.test_contract import ARGUMENTS

    for name in methods.METHODS:
        if some and name not in SOME:
            continue
        arguments = {**ARGUMENTS[name], "loss": MARGIN}
        arguments.pop("view", None)
        if name == "baseline":
            arguments["loss"] = {**MARGIN, "mining": "distance_weighted"}
        if name == "divide_and_conquer":
            arguments |= {"update": "active", "num_learners": 2}
        # The weights of BIER's small groups run away at a higher rate.
        yield of_method(name, arguments, 0.01 if name == "bier" else 0.05)


def of_method(name: str, arguments: dict[str, Any], rate: float) -> Case:
    def make() -> MetricModel:
        backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
        return methods.METHODS[name].value(backbone, **arguments)

    x: Any = images()
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
    return Case(name, make, x, targets, rate=rate)


FAMILIES = {
    "losses": all_losses,
    "miners": all_miners,
    "labels": other_labels,
    "options": all_options,
    "methods": all_methods,
}


def trained(
    case: Case, strategy: tf.distribute.Strategy, eager: bool
) -> Trained:
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = case.make()
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
    logs = model.fit(batches, verbose=0).history
    return Trained(
        [v.path for v in model.weights],
        before,
        model.get_weights(),
        {name: values[0] for name, values in logs.items()},
        [v.numpy() for v in model.objective.seed_states()],
    )


def differences(
    family: str, case: Case, many: tf.distribute.Strategy, eager: bool = False
) -> Iterator[Difference]:
    one = trained(case, tf.distribute.get_strategy(), eager)
    for found in compared(case, one, trained(case, many, eager)):
        yield Difference(family, *found)


def compared(case: Case, one: Trained, many: Trained) -> Iterator[tuple]:
    """(name, error of the loss, error of the update, variable, integers)."""
    for a, b in zip(one.before, many.before, strict=True):
        np.testing.assert_array_equal(a, b)
    same = all(
        np.array_equal(a, b)
        for a, b in zip(
            [*one.seeds, *(x for x in one.after if x.dtype.kind != "f")],
            [*many.seeds, *(x for x in many.after if x.dtype.kind != "f")],
            strict=True,
        )
    )
    errors = {
        name: abs(one.logs[name] - many.logs[name])
        / max(abs(one.logs[name]), 1e-12)
        for name in one.logs
    }
    is_apart = bool(case.parts)
    for k, name in enumerate(case.parts or [case.name]):
        part = slice(k * DIM, (k + 1) * DIM)
        worst, where = 0.0, ""
        for path, *values in zip(
            one.names, one.before, one.after, many.after, strict=True
        ):
            if values[0].dtype.kind != "f":
                continue
            if is_apart and path.startswith("parts"):
                values = [x[..., part] for x in values]
            elif is_apart and f"/{name}/" not in f"/{path}/":
                continue
            error = difference(*values)
            if error > worst:
                worst, where = error, path
        loss = errors[name] if is_apart else max(errors.values())
        yield name, loss, worst, where, same


def difference(before: np.ndarray, one: np.ndarray, many: np.ndarray) -> float:
    """The norm of the difference, relative to that of the update."""
    apart = np.linalg.norm(many - one)
    return float(apart / np.linalg.norm(one - before)) if apart else 0.0


def replicas(count: int) -> tf.distribute.Strategy:
    """A strategy of logical devices, of which a process can have one."""
    # A graph that runs three times is not worth optimizing.
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": True}
    )
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        device, [tf.config.LogicalDeviceConfiguration()] * count
    )
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("replicas", type=int)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--some", action="store_true")
    given = parser.parse_args()
    many = replicas(given.replicas)
    for family in given.families:
        for case in FAMILIES[family](given.some):
            for row in differences(family, case, many, given.eager):
                print(json.dumps(asdict(row), ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
