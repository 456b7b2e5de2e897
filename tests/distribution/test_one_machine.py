"""Replicas of one machine compute what one device does.

All that is compared in float32, as users train, is compared in one process,
    python -m tests.distribution.test_one_machine
since logical devices are set once in a process. Models train on three
replicas, of which 32 rows in batches of ten leave some with fewer or none. A
process can have replicas in one number only.
"""

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import MetricModel, callbacks, data, evaluation, losses, methods
from keras_dml.model.update import slots_of
from tests.distribution import equality
from tests.distribution.equality import DIM, parted, perceptron
from tests.resuming.trainings import goes_on

Strategy = tf.distribute.Strategy

X = np.random.default_rng(0).standard_normal((32, 16)).astype("float32")
Y = np.random.default_rng(1).integers(0, 4, 32)
WEIGHTS = np.linspace(0, 2, 32)
MEAN = {"name": "contrastive", "reduction": "mean"}


@pytest.mark.slow
@pytest.mark.parametrize("module", ["float64", "test_one_machine"])
def test_replicas_compute_what_one_device_does(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"tests.distribution.{module}"],
        # Replicas wait for each other: each needs a thread.
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "TF_NUM_INTEROP_THREADS": "4",
        },
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=900,
    )
    output = done.stdout[-1000:] + done.stderr[-3000:]
    assert done.returncode == 0, output


def assert_close(one: Any, many: Any, name: str, **limits: float) -> None:
    keras.tree.assert_same_structure(one, many)
    for a, b in zip(
        keras.tree.flatten(one), keras.tree.flatten(many), strict=True
    ):
        np.testing.assert_allclose(b, a, err_msg=name, **limits)


def check_options(replicas: Strategy) -> None:
    equality.check_equal(equality.options(), replicas, 1e-6, 2e-5)


# Ways to train and compute: one model goes them all, one after the other.


def build(strategy: Strategy, **arguments: Any) -> MetricModel:
    with strategy.scope():
        keras.utils.set_random_seed(1)
        norm = keras.layers.BatchNormalization()
        model = methods.baseline(
            perceptron(norm), embedding_dim=DIM, loss=MEAN, **arguments
        )
        model.compile(
            keras.optimizers.SGD(0.1, momentum=0.5),
            metrics=[spread],
            weighted_metrics=[keras.metrics.MeanMetricWrapper(spread, "mean")],
        )
    return model


@keras.saving.register_keras_serializable("tests")
def spread(labels: Any, embeddings: Any) -> Any:
    """A statistic of the whole batch, which differs on a share of it."""
    deviation = keras.ops.sum(keras.ops.std(embeddings, axis=0))
    return deviation + keras.ops.cast(labels, "float32") * embeddings[:, 0]


def dataset(size: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(size)


def of_unknown_length() -> tf.data.Dataset:
    return dataset(10).filter(lambda x, y: True)


def generator() -> Iterator[Any]:
    for start in range(0, 32, 10):
        yield X[start : start + 10], Y[start : start + 10]


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, k: int) -> Any:
        return X[k * 10 : k * 10 + 10], Y[k * 10 : k * 10 + 10]


WAYS: dict[str, Callable[[MetricModel], Any]] = {
    "dataset": lambda m: m.fit(dataset(10), epochs=2, verbose=0),
    "PyDataset": lambda m: m.fit(Batches(), epochs=2, verbose=0),
    "arrays": lambda m: m.fit(X, Y, 10, shuffle=False, verbose=0),
    "steps": lambda m: m.fit(
        dataset(10).repeat(), steps_per_epoch=5, epochs=2, verbose=0
    ),
    "balanced arrays": lambda m: m.fit(X, Y, 10, verbose=0),
    "train_on_batch": lambda m: [
        m.train_on_batch(X[:n], Y[:n], return_dict=True) for n in (10, 2)
    ],
    "weights": lambda m: m.fit(X, Y, 10, sample_weight=WEIGHTS, verbose=0),
    "unknown length": lambda m: m.fit(of_unknown_length(), epochs=2, verbose=0),
    "generator": lambda m: m.fit(generator(), verbose=0),
    "validation": lambda m: m.fit(
        dataset(10),
        epochs=3,
        class_weight={0: 2.0, 1: 0.5},
        validation_data=(X, Y, WEIGHTS),
        callbacks=[
            keras.callbacks.EarlyStopping(
                "val_loss", mode="max", patience=0, restore_best_weights=True
            )
        ],
        verbose=0,
    ),
    "evaluate": lambda m: m.evaluate(dataset(10), verbose=0, return_dict=True),
    "evaluate arrays": lambda m: m.evaluate(
        X, Y, 10, sample_weight=WEIGHTS, balanced=False, verbose=0,
        return_dict=True,
    ),
    "test_on_batch": lambda m: m.test_on_batch(X[:2], Y[:2], return_dict=True),
    "predict": lambda m: m.predict(X, batch_size=10, verbose=0),
    "predict_on_batch": lambda m: m.predict_on_batch(X[:2]),
    "embed": lambda m: evaluation.embed(m, X, batch_size=10),
}  # fmt: skip


def outcome(way: Callable[[MetricModel], Any], model: MetricModel) -> Any:
    keras.utils.set_random_seed(2)  # Of balanced batches.
    result = way(model)
    if isinstance(result, keras.callbacks.History):
        result = result.history
    return keras.tree.map_structure(np.asarray, result), model.get_weights()


def reloaded(model: MetricModel, strategy: Strategy) -> list[np.ndarray]:
    """Goes on with a saved model, outside the strategy, inside, and frozen."""
    keras.utils.set_random_seed(2)  # Of balanced batches.
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        outside = keras.models.load_model(f"{folder}/model.keras")
        model.save_weights(f"{folder}/model.weights.h5")
        with strategy.scope():
            inside = keras.models.load_model(f"{folder}/model.keras")
            inside.load_weights(f"{folder}/model.weights.h5")
    results: list[Any] = []
    for loaded in (outside, inside):
        results += loaded.fit(dataset(10), verbose=0).history.values()
        results += [*loaded.get_weights(), loaded.predict(X, verbose=0)]
    inside.backbone.trainable = False
    before = inside.backbone.get_weights()
    with strategy.scope():
        inside.compile("sgd")
    results += inside.fit(X, Y, verbose=0).history.values()
    for a, b in zip(before, inside.backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    return list(map(np.asarray, [*results, *inside.get_weights()]))


def check_ways(replicas: Strategy) -> None:
    default = tf.distribute.get_strategy()
    one, many = build(default), build(replicas)
    for name, way in WAYS.items():
        limits = {"rtol": 2e-5, "atol": 1e-5}
        assert_close(outcome(way, one), outcome(way, many), name, **limits)
    assert_close(
        reloaded(one, default), reloaded(many, replicas), "reloaded",
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def check_a_batch_is_judged_whole(replicas: Strategy) -> None:
    """The batch has pairs, but no replica has two examples of a class."""
    warnings: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warnings.append(record.getMessage())
    logging.getLogger("keras_dml").addHandler(handler)
    model = build(replicas)
    for labels, count in ((np.arange(8) % 4, 0), (np.arange(8), 1)):
        batch = tf.data.Dataset.from_tensors((X[:8], labels))
        model.fit(batch, verbose=0)
        assert len(warnings) == count, warnings
    assert "No two of the 8 examples in a batch have the" in warnings[0]


def check_wrong_labels_raise(replicas: Strategy) -> None:
    with replicas.scope():
        loss = {"name": "proxy_anchor", "num_classes": 3}
        model = methods.baseline(perceptron(), embedding_dim=DIM, loss=loss)
        model.compile("sgd")
    with pytest.raises(ValueError, match="a label 3"):
        model.fit(dataset(10), verbose=0)
    with pytest.raises(ValueError, match="no weight"):
        model.evaluate(dataset(10), verbose=0)


def check_overflow(replicas: Strategy) -> None:
    """An overflow on the last replica skips the update on all."""
    with replicas.scope():
        x = keras.Input((16,))
        # The root of nothing has no gradient.
        root = keras.ops.sqrt(
            keras.ops.abs(keras.layers.Dense(12, use_bias=False)(x))
        )
        model = methods.baseline(
            keras.Model(x, root), embedding_dim=DIM, loss=MEAN
        )
        inner = keras.optimizers.SGD(0.1)
        model.compile(keras.optimizers.LossScaleOptimizer(inner))
    before = model.get_weights()
    batch, labels = X[:8].copy(), np.arange(8) // 2
    batch[-1] = 0
    model.train_on_batch(batch, labels)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    scale = keras.ops.convert_to_numpy(model.optimizer.dynamic_scale)
    assert scale == 2.0**14
    model.train_on_batch(X[:8], labels)
    assert not np.array_equal(before[0], model.get_weights()[0])
    assert all(np.isfinite(w).all() for w in model.get_weights())


class Counting(keras.layers.Layer):
    """Counts rows on all replicas."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.counts: list[int] = []

    def call(self, x: Any) -> Any:
        tf.numpy_function(self._count, [tf.shape(x)[0]], [])
        return x

    def _count(self, rows: int) -> tuple[()]:
        self.counts.append(rows)
        return ()


def check_each_row_is_embedded_once(replicas: Strategy) -> None:
    """By `evaluate` and callbacks, which measure and divide as one device."""
    default = tf.distribute.get_strategy()
    assert measured_by(replicas) == pytest.approx(
        measured_by(default), rel=1e-5
    )


def measured_by(strategy: Strategy) -> dict[str, float]:
    with strategy.scope():
        keras.utils.set_random_seed(1)
        counting = Counting()
        model = methods.divide_and_conquer(
            perceptron(counting), embedding_dim=6, num_learners=2, loss=MEAN
        )
        model.compile("sgd")
    training = data.ArraySet(X, Y)
    sampler = data.ClusterSampler(
        Y, num_learners=2, classes_per_batch=2, images_per_class=2
    )
    recluster = callbacks.Recluster(training, sampler, batch_size=10)
    retrieval = callbacks.RetrievalEvaluation(training, batch_size=10)
    logs: dict[str, float] = {}
    keras.callbacks.CallbackList(
        [recluster, retrieval], model=model, epochs=1, steps=1
    )
    for name, action in {
        "evaluate": lambda: logs.update(
            model.evaluate(dataset(10), verbose=0, return_dict=True)
        ),
        "RetrievalEvaluation": lambda: retrieval.on_epoch_end(0, logs),
        "Recluster": lambda: recluster.on_epoch_begin(0),
    }.items():
        counting.counts.clear()
        action()
        assert sum(counting.counts) == len(X), (name, counting.counts)
    clusters = dict(enumerate(sampler.assignments.tolist()))
    return {**logs, **{f"cluster of {k}": c for k, c in clusters.items()}}


# Without a gather, losses on pairs compare within a replica: a batch of N is
# three batches of N/3, whose gradients are averaged. Memories hold all.

THIRDS = (slice(8), slice(8, 16), slice(16, 24))
# Each third has its own mixture of classes.
LABELS = np.array(
    [
        [0, 0, 0, 1, 1, 2, 2, 3],
        [0, 1, 1, 2, 3, 3, 3, 2],
        [1, 0, 3, 3, 2, 0, 1, 1],
    ]
).ravel()
LOSSES = {
    "pairs": {"name": "contrastive", "reduction": "sum_over_pairs"},
    "triplets": {"name": "triplet", "mining": "hard"},
    "proxies": {"name": "proxy_anchor", "num_classes": 4},
    "memory": {"name": "cross_batch_memory", "loss": "contrastive", "size": 40},
}


def ungathered(strategy: Strategy) -> MetricModel:
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = parted(LOSSES, gather="none")
        model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    return model


def step(model: MetricModel, rows: slice) -> tuple[dict[str, Any], list[Any]]:
    """Losses and weight changes of one step from the initial weights."""
    weights = model.get_weights()
    logs = model.train_on_batch(X[rows], LABELS[rows], return_dict=True)
    moves = [
        v.numpy() - before
        for v, before in zip(model.weights, weights, strict=True)
        if v.trainable
    ]
    model.set_weights(weights)
    return logs, moves


def check_ungathered_is_the_mean(replicas: Strategy) -> None:
    alone, model = (
        ungathered(tf.distribute.get_strategy()),
        ungathered(replicas),
    )
    number = list(LOSSES).index("memory")
    memory_embeddings = np.concatenate(
        [
            model.outputs_of(X[third], training=True)["parts"][:, number]
            for third in THIRDS
        ]
    )
    weights = model.get_weights()
    logs = model.train_on_batch(X[:24], LABELS, return_dict=True)
    memory = model.objective.metric_losses["memory"]
    assert memory.queue.count.numpy() == 24
    assert memory.updates.numpy() == 1
    np.testing.assert_array_equal(memory.queue.labels[:24], LABELS)
    np.testing.assert_allclose(
        memory.queue.embeddings[:24],
        keras.ops.normalize(memory_embeddings),
        atol=1e-6,
    )
    model.set_weights(weights)
    logs, moves = step(model, slice(24))
    thirds = [step(alone, third) for third in THIRDS]
    for name in LOSSES:
        values = [float(x[name]) for x, _ in thirds]
        np.testing.assert_allclose(logs[name], np.mean(values), rtol=1e-6)
    for v, together, *each in zip(
        alone.trainable_variables, moves, *(x for _, x in thirds), strict=True
    ):
        # A part of the embedding for each loss, or what a loss owns.
        for part in range(together.shape[-1] // DIM):
            columns = np.s_[..., part * DIM : (part + 1) * DIM]
            whole, shares = together[columns], [x[columns] for x in each]
            size = np.linalg.norm(whole)
            assert size > 0, v.path
            error = np.linalg.norm(whole - np.mean(shares, axis=0))
            assert error < 2e-5 * size, v.path
            assert np.linalg.norm(whole - shares[0]) > 1e-3 * size, v.path


def check_moving_statistics(replicas: Strategy) -> None:
    """Without comparisons, replicas share one moving mean and variance."""
    x = X[:24].reshape(2, 12, 16)
    mean, variance = np.zeros(16), np.ones(16)
    for thirds in x.reshape(2, 3, 4, 16):
        mean = 0.5 * mean + 0.5 * thirds.mean(axis=(0, 1))
        variance = 0.5 * variance + 0.5 * thirds.var(axis=1).mean(axis=0)
    with replicas.scope():
        inputs = keras.Input((16,))
        norm = keras.layers.BatchNormalization(momentum=0.5)
        model = methods.baseline(
            keras.Model(inputs, norm(inputs)), embedding_dim=DIM, gather="none"
        )
        model.compile("sgd", run_eagerly=True)
    labels = np.tile([0, 1], (2, 6))
    model.fit(tf.data.Dataset.from_tensor_slices((x, labels)), verbose=0)
    for variable, expected in (
        (norm.moving_mean, mean),
        (norm.moving_variance, variance),
    ):
        for copy in variable.value.values:
            np.testing.assert_allclose(copy, expected, rtol=1e-5, atol=1e-6)


# Steps in parts, and what optimizers do with the gradient of the batch.


def train(
    loss: Any,
    accumulate: int = 1,
    policy: str = "float32",
    normalization: dict[str, bool] | None = None,
    regularizer: str | None = None,
    optimizer: dict[str, Any] | None = None,
    tokens: bool = False,
    **arguments: Any,
) -> tuple[list[float], list[np.ndarray]]:
    """The loss of both steps, and weights and slots after them."""
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((16,))
    if tokens:  # Few, which every replica reads more than once.
        x = keras.layers.Embedding(4, 3)(keras.ops.cast(abs(x), "int32"))
        x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(
        6, activation="tanh", activity_regularizer=regularizer
    )(x)
    if normalization is not None:
        x = keras.layers.BatchNormalization(**normalization)(x)
    model = methods.baseline(
        keras.Model(inputs, x),
        embedding_dim=DIM,
        loss=losses.get(loss),
        accumulate=accumulate,
        rate_multipliers={"head": 2.0},
        **arguments,
    )
    config = optimizer or {"class_name": "Adam", "config": {}}
    config["config"]["learning_rate"] = 0.01
    model.compile(keras.optimizers.get(config), jit_compile=False)
    values: list[float] = []
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: values.append(logs["loss"])
    )
    model.fit(dataset(12).take(2), verbose=0, callbacks=[record])
    keras.config.set_dtype_policy("float32")
    slots = [
        slot
        for v in model.trainable_variables
        for slot in slots_of(model.optimizer, v)
    ]
    variables = [v.value for v in (*model.weights, *slots)]
    for v in variables:  # Replicas agree to the bit.
        first, *rest = getattr(v, "values", [v])
        for copy in rest:
            np.testing.assert_array_equal(first.numpy(), copy.numpy())
    return values, [v.numpy() for v in variables]


SAMPLED = {
    "name": "soft_triple",
    "num_classes": 20,
    "num_centers": 2,
    "class_share": 0.5,
    "seed": 2,
}


def check_steps(replicas: Strategy) -> None:
    per_class = {
        "name": "margin",
        "learn_beta": True,
        "num_classes": 20,
        "mining": "all",
    }
    adagrad = {"class_name": "Adagrad", "config": {"global_clipnorm": 0.01}}
    steps: dict[str, dict[str, Any]] = {
        "parts": {"loss": "multi_similarity", "accumulate": 3},
        "rows that are read more than once": {
            "loss": per_class,
            "tokens": True,
            "optimizer": adagrad,
        },
    }
    for name, arguments in steps.items():
        values, state = train(**arguments)
        with replicas.scope():
            values_of_many, state_of_many = train(**arguments)
        assert len(state) > 10
        assert_close(values, values_of_many, name, rtol=1e-5)
        assert_close(state, state_of_many, name, rtol=1e-3, atol=2e-5)
    with replicas.scope():
        # Half precision differs by more than what there is to compare.
        for arguments in (
            {"loss": SAMPLED, "policy": "mixed_float16"},
            {"loss": "contrastive", "normalization": {}},
        ):
            values, _ = train(accumulate=2, **arguments)
            assert np.isfinite(values).all()


def check_clipping(replicas: Strategy) -> None:
    """The gradient of the whole batch is clipped."""

    def weights_after(strategy: Strategy, **clip: float) -> list:
        keras.utils.set_random_seed(1)
        with strategy.scope():
            inputs = keras.Input((16,))
            backbone = keras.Model(inputs, keras.layers.Dense(6)(inputs))
            model = methods.baseline(backbone, embedding_dim=DIM, loss=MEAN)
            optimizer = keras.optimizers.SGD(0.5, **clip)
            if "global_clipnorm" in clip:
                optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
            model.compile(optimizer, run_eagerly=True)
        model.fit(dataset(8), verbose=0)
        return model.get_weights()

    one = tf.distribute.get_strategy()
    free = weights_after(one)
    for clip in ({"clipnorm": 0.02}, {"global_clipnorm": 0.02}):
        expected = weights_after(one, **clip)
        assert np.abs(expected[0] - free[0]).max() > 1e-3
        assert_close(
            expected, weights_after(replicas, **clip), str(clip),
            rtol=1e-4, atol=2e-6,
        )  # fmt: skip


def check_refusals(replicas: Strategy) -> None:
    model = build(replicas, gather="none")
    with pytest.raises(tf.errors.OpError, match="drop_remainder=True"):
        model.fit(dataset(10), verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())
    with replicas.scope():
        model = methods.baseline(perceptron(), gather="none")
    model.compile("sgd")
    with pytest.raises(ValueError, match="/iteration.*call `compile` there"):
        model.fit(X, Y, verbose=0)
    with replicas.scope():
        model.compile("sgd", jit_compile=True)
    model.evaluate(X, Y, verbose=0)
    assert model.jit_compile is False
    relations = (Y[:8, None] == Y[:8]).astype("int32")
    with pytest.raises(ValueError, match="`gather` of MetricModel must be"):
        model.train_on_batch(X[:8], relations)
    with pytest.raises(tf.errors.OpError, match="3 rows, 1 for each"):
        model.train_on_batch(X[:1], Y[:1])
    metric = keras.metrics.MeanMetricWrapper(spread, name="outside")
    with replicas.scope():
        model.compile("sgd", metrics=[metric])
    with pytest.raises(ValueError, match="'outside/"):
        model.fit(X, Y, verbose=0)
    refused: list[tuple[str, dict[str, Any]]] = [
        ("gather", {"loss": SAMPLED, "gather": "none"}),
        ("gather", {"loss": MEAN, "regularizer": "l2"}),
        (
            "accumulate",
            {
                "loss": "contrastive",
                "accumulate": 2,
                "normalization": {"synchronized": True},
            },
        ),
    ]
    for name, arguments in refused:
        match = f"`{name}` of MetricModel must be"
        with replicas.scope(), pytest.raises(ValueError, match=match):
            train(**arguments)


def check_resuming(replicas: Strategy) -> None:
    """A training interrupted within an epoch resumes bit for bit."""
    with tempfile.TemporaryDirectory() as folder:
        compared, changed = goes_on("baseline", Path(folder), replicas)
    assert changed == []
    assert compared > 30


CHECKS = (
    check_options,
    check_ways,
    check_a_batch_is_judged_whole,
    check_wrong_labels_raise,
    check_overflow,
    check_each_row_is_embedded_once,
    check_ungathered_is_the_mean,
    check_moving_statistics,
    check_steps,
    check_clipping,
    check_refusals,
    check_resuming,
)


def main() -> None:
    devices = equality.use_logical_devices(3)
    replicas = tf.distribute.MirroredStrategy(devices)
    for check in CHECKS:
        start = time.perf_counter()
        check(replicas)
        seconds = time.perf_counter() - start
        print(f"{check.__name__} {seconds:.0f} s", flush=True)
    # An iterator that is left would wait at exit for threads that wait for
    # the interpreter.
    os._exit(0)


if __name__ == "__main__":
    main()
