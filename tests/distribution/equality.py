"""R replicas against one: every loss, every miner, every method.

    python -m tests.distribution.equality R [FAMILY…]

trains each case for three steps on one replica, and on R of the logical
devices of one machine, and prints a line of JSON for it. Losses are trained
many at once, each with a part of the embedding to itself: what takes time is
tracing, and most of that is not theirs.
"""

import json
import os
import sys
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
MARGIN = {"name": "margin", "learn_beta": True}


@dataclass
class Difference:
    """How far R replicas are from one."""

    family: str
    name: str
    loss: float
    """Relative, of the mean over three steps."""
    update: float
    """Of a weight over three steps, relative to the largest of a variable;
    the worst variable's."""
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
        self.dense = keras.layers.Dense(count * DIM, dtype="float32")
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
            keras.layers.Layer(dtype="float32", name=name) for name in given
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
    return values.astype("float32")


def images() -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 256, (COUNT, 16, 16, 1))
    return values.astype("float32")


def perceptron(*layers: keras.layers.Layer) -> keras.Model:
    inputs = keras.Input((16,))
    x = keras.layers.Dense(12, activation="tanh")(inputs)
    for layer in layers:
        x = layer(x)
    return keras.Model(inputs, x)


def apart(given: dict[str, Any], **targets: Any) -> Case:
    """One case of many losses."""

    def make() -> MetricModel:
        inputs = keras.Input((16,))
        backbone = keras.Model(inputs, keras.ops.tanh(inputs))
        return MetricModel(backbone, Parts(len(given)), EachApart(given))

    return Case("apart", make, vectors(), targets, parts=tuple(given))


def baseline(name: str, loss: Any, *layers: Any, **changes: Any) -> Case:
    def make() -> MetricModel:
        # A layer belongs to one model.
        copies = [x.from_config(x.get_config()) for x in layers]
        return methods.baseline(
            perceptron(*copies), embedding_dim=DIM, loss=loss
        )

    case = {"x": vectors(), "y": {"label": LABELS}, **changes}
    return Case(name, make, **case)


def all_losses() -> Iterator[Case]:
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
    for part in chunks(given, 12):
        yield apart(part, label=LABELS)


def of_registry(name: str) -> dict[str, Any]:
    values = {
        "num_classes": CLASSES,
        "class_counts": [5, 1, 3, 2, 9, 4, 3, 3],
    }
    found = parameters_of(losses.LOSSES[name].value).values()
    needed = {p.name: values[p.name] for p in found if p.default is p.empty}
    return {"name": name, **needed}


def all_miners() -> Iterator[Case]:
    given = {
        f"{loss}, {miner}": {"name": loss, "mining": miner}
        for miner in losses.mining.MINING
        for loss in ("triplet", "contrastive")
    }
    for part in chunks(given, 12):
        yield apart(part, label=LABELS)


def other_labels() -> Iterator[Case]:
    """Labels that are no class ids."""
    given = {x: x for x in ("contrastive", "triplet", "multi_sup_con")}
    sets = np.random.default_rng(1).random((COUNT, 5)) < 0.3
    yield apart({f"{x}, label sets": x for x in given}, label=sets)
    table = LABELS.reshape(STEPS, BATCH)
    relations = (table[:, :, None] == table[:, None, :]).astype("int64")
    relations[:, :3, 5:9] = -1  # Neither.
    relations[:, 5:9, :3] = -1
    rows = relations.reshape(COUNT, BATCH)
    yield apart({f"{x}, relations": x for x in given}, label=rows)


def all_options() -> Iterator[Case]:
    """What a step has besides a loss."""
    weight = np.random.default_rng(2).uniform(0, 2, COUNT).astype("float32")
    yield baseline("sample weights", "contrastive", weight=weight)
    several = {
        "contrastive": {"weight": 0.5},
        "proxy_anchor": {"num_classes": CLASSES},
        "xbm": {"name": "cross_batch_memory", "loss": "triplet", "size": 40},
    }
    yield baseline("several losses", several)
    yield baseline(
        "batch normalization, synchronized",
        "contrastive",
        keras.layers.BatchNormalization(),
    )
    yield baseline(
        "batch normalization, frozen",
        "contrastive",
        FrozenBatchNormalization(),
    )


def all_methods() -> Iterator[Case]:
    """Each method with arguments that are no defaults.

    Two are so ill-conditioned on the convolutional network that inputs
    rounded otherwise, by 2e-7, move the weights of one replica by 1e-3: DCML
    with the margin loss, and BIER.
    """
    from tests.methods.test_contract import ARGUMENTS

    for name in methods.METHODS:
        arguments = {**ARGUMENTS[name], "loss": MARGIN}
        arguments.pop("view", None)
        if name == "dcml":
            arguments["loss"] = "contrastive"
        if name == "bier":
            yield boosted(name)
        else:
            yield of_method(name, arguments)


def boosted(name: str) -> Case:
    def make() -> MetricModel:
        return methods.bier(
            perceptron(),
            embedding_dim=10,
            group_sizes=[1, 1, 3],
            regressor_units=5,
            norm_penalty=0.01,
        )

    return Case(name, make, vectors(), {"label": LABELS}, rate=0.01)


def of_method(name: str, arguments: dict[str, Any]) -> Case:
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
    }
    return Case(name, make, x, targets, rate=0.05)


FAMILIES = {
    "losses": all_losses,
    "miners": all_miners,
    "labels": other_labels,
    "options": all_options,
    "methods": all_methods,
}


def chunks(given: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    items = list(given.items())
    for start in range(0, len(items), size):
        yield dict(items[start : start + size])


def trained(case: Case, strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = case.make()
        model.compile(keras.optimizers.SGD(case.rate), jit_compile=False)
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
    """How far updates are apart, relative to the largest.

    A weight is rounded at every step, which of an update that is small
    next to it leaves few digits: that much is not counted.
    """
    size = np.abs(one - before).max()
    rounding = STEPS * np.spacing(np.abs(before))
    apart = np.maximum(np.abs(one - many) - rounding, 0)
    return float(apart.max() / max(size, 1e-12))


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


def main(count: str, *families: str) -> None:
    many = replicas(int(count))
    for family in families or FAMILIES:
        for case in FAMILIES[family]():
            one = trained(case, tf.distribute.get_strategy())
            for found in compared(case, one, trained(case, many)):
                row = Difference(family, *found)
                print(json.dumps(asdict(row), ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
