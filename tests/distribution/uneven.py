"""Three replicas, and batches that do not divide by three."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import MetricModel, callbacks, data, evaluation, methods
from tests.distribution.equality import perceptron

X = np.random.default_rng(0).standard_normal((32, 16)).astype("float32")
Y = np.random.default_rng(1).integers(0, 4, 32)
LOSS = {"name": "contrastive", "reduction": "mean"}


def made(strategy: tf.distribute.Strategy, **arguments: Any) -> MetricModel:
    with strategy.scope():
        keras.utils.set_random_seed(1)
        norm = keras.layers.BatchNormalization()
        model = methods.baseline(
            perceptron(norm), embedding_dim=6, loss=LOSS, **arguments
        )
        # A function of whole batches, which a share of one would not give.
        same = keras.metrics.MeanMetricWrapper(spread, name="spread")
        model.compile(keras.optimizers.SGD(0.1), metrics=[same])
    return model


def spread(labels: Any, embeddings: Any) -> Any:
    deviation = keras.ops.sum(keras.ops.std(embeddings, axis=0))
    return deviation * keras.ops.ones_like(embeddings[:, 0])


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


# Three batches of ten and one of two, of which a replica has nothing. What
# takes time is tracing, so that one model goes all ways, one after the other.
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
    "weights": lambda m: m.fit(
        X, Y, 10, sample_weight=np.linspace(0, 2, 32), verbose=0
    ),
    "unknown length": lambda m: m.fit(of_unknown_length(), epochs=2, verbose=0),
    "generator": lambda m: m.fit(generator(), verbose=0),
    "evaluate": lambda m: m.evaluate(dataset(10), verbose=0, return_dict=True),
    "evaluate arrays": lambda m: m.evaluate(
        X, Y, 10, balanced=False, verbose=0, return_dict=True
    ),
    "test_on_batch": lambda m: m.test_on_batch(X[:2], Y[:2], return_dict=True),
    "predict": lambda m: m.predict(X, batch_size=10, verbose=0),
    "predict_on_batch": lambda m: m.predict_on_batch(X[:2]),
    "embed": lambda m: evaluation.embed(m, X, batch_size=10),
}


def outcome(way: Callable[[MetricModel], Any], model: MetricModel) -> Any:
    keras.utils.set_random_seed(2)  # Of balanced batches.
    found = way(model)
    if isinstance(found, keras.callbacks.History):
        found = found.history
    return keras.tree.map_structure(np.asarray, found), model.get_weights()


def check_equal(strategy: tf.distribute.Strategy) -> None:
    one, many = made(tf.distribute.get_strategy()), made(strategy)
    for name, way in WAYS.items():
        expected, found = outcome(way, one), outcome(way, many)
        keras.tree.assert_same_structure(expected, found)
        for a, b in zip(
            keras.tree.flatten(expected), keras.tree.flatten(found), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5, err_msg=name)


def check_refusals(strategy: tf.distribute.Strategy) -> None:
    model = made(strategy, gather="none")
    with pytest.raises(tf.errors.OpError, match="drop_remainder=True"):
        model.fit(dataset(10), verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())


def check_judged_as_a_whole(strategy: tf.distribute.Strategy) -> None:
    """No replica has two of a class: the batch has pairs, they do not."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("keras_dml").addHandler(handler)
    model = made(strategy)
    labels = np.array([0, 1, 2, 3, 0, 1, 2, 3])
    model.fit(tf.data.Dataset.from_tensors((X[:8], labels)), verbose=0)
    assert not said, said
    alone = tf.data.Dataset.from_tensors((X[:8], np.arange(8)))
    model.fit(alone, verbose=0)
    assert "No two of the 8 examples in a batch have the same class" in said[0]


def check_wrong_labels(strategy: tf.distribute.Strategy) -> None:
    with strategy.scope():
        loss = {"name": "proxy_anchor", "num_classes": 3}
        model = methods.baseline(perceptron(), embedding_dim=6, loss=loss)
        model.compile("sgd")
    with pytest.raises(ValueError, match="a label 3"):
        model.fit(dataset(10), verbose=0)
    with pytest.raises(ValueError, match="no weight"):
        model.evaluate(dataset(10), verbose=0)


def check_overflow(strategy: tf.distribute.Strategy) -> None:
    """What overflows on the last replica moves the weights of none."""
    with strategy.scope():
        x = keras.Input((16,))
        # The root of nothing has no gradient.
        root = keras.ops.sqrt(
            keras.ops.abs(keras.layers.Dense(12, use_bias=False)(x))
        )
        model = methods.baseline(
            keras.Model(x, root), embedding_dim=6, loss=LOSS
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
    """Counts the rows that pass, on all replicas."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.counts: list[int] = []

    def call(self, x: Any) -> Any:
        tf.numpy_function(self._count, [tf.shape(x)[0]], [])
        return x

    def _count(self, rows: int) -> tuple[()]:
        self.counts.append(rows)
        return ()


def check_each_is_seen_once(strategy: tf.distribute.Strategy) -> None:
    """32 images are 32 embeddings, whoever asks, and say the same."""
    assert seen_by(strategy) == pytest.approx(
        seen_by(tf.distribute.get_strategy()), rel=1e-5
    )


def seen_by(strategy: tf.distribute.Strategy) -> dict[str, float]:
    with strategy.scope():
        keras.utils.set_random_seed(1)
        counting = Counting()
        model = methods.divide_and_conquer(
            perceptron(counting), embedding_dim=6, num_learners=2, loss=LOSS
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


def check_uneven(strategy: tf.distribute.Strategy) -> None:
    check_equal(strategy)
    check_refusals(strategy)
    check_judged_as_a_whole(strategy)
    check_wrong_labels(strategy)
    check_overflow(strategy)
    check_each_is_seen_once(strategy)
