"""Three replicas that do not gather: the mean of what each third does alone.

With `gather="none"` losses on pairs compare within a replica: a batch of N on
three replicas is three batches of N/3, whose gradients are averaged. Memories
hold what all replicas have seen.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml import MetricModel
from tests.distribution.equality import DIM, parted

X = np.random.default_rng(0).standard_normal((24, 16)).astype("float32")
# Each third has its own mixture of classes.
THIRDS = (slice(8), slice(8, 16), slice(16, 24))
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


def made(strategy: tf.distribute.Strategy) -> MetricModel:
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = parted(LOSSES, gather="none")
        model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    return model


def step(model: MetricModel, rows: slice) -> tuple[dict[str, Any], list[Any]]:
    """What a loss is, and how weights move, by one step from the first."""
    weights = model.get_weights()
    logs = model.train_on_batch(X[rows], LABELS[rows], return_dict=True)
    moved = [
        v.numpy() - before
        for v, before in zip(model.weights, weights, strict=True)
        if v.trainable
    ]
    model.set_weights(weights)
    return logs, moved


def check_mean_of_thirds(strategy: tf.distribute.Strategy) -> None:
    alone = made(tf.distribute.get_strategy())
    logs, moved = step(made(strategy), slice(None))
    thirds = [step(alone, third) for third in THIRDS]
    for name in LOSSES:
        values = [float(x[name]) for x, _ in thirds]
        np.testing.assert_allclose(logs[name], np.mean(values), rtol=1e-6)
    for v, together, *each in zip(
        alone.trainable_variables, moved, *(x for _, x in thirds), strict=True
    ):
        # A part of the embedding for each loss, or what a loss owns.
        for part in range(together.shape[-1] // DIM):
            columns = np.s_[..., part * DIM : (part + 1) * DIM]
            whole, shares = together[columns], [x[columns] for x in each]
            size = np.linalg.norm(whole)
            assert size > 0, v.path
            apart = np.linalg.norm(whole - np.mean(shares, axis=0))
            assert apart < 2e-5 * size, v.path
            assert np.linalg.norm(whole - shares[0]) > 1e-3 * size, v.path


def check_memory_of_all(strategy: tf.distribute.Strategy) -> None:
    model = made(strategy)
    part = list(LOSSES).index("memory")
    expected = [
        model.outputs_of(X[third], training=True)["parts"][:, part]
        for third in THIRDS
    ]
    model.train_on_batch(X, LABELS)
    memory = model.objective.metric_losses["memory"]
    assert memory.queue.count.numpy() == 24
    assert memory.updates.numpy() == 1
    np.testing.assert_array_equal(memory.queue.labels[:24], LABELS)
    np.testing.assert_allclose(
        memory.queue.embeddings[:24],
        keras.ops.normalize(np.concatenate(expected)),
        atol=1e-6,
    )


def check_ungathered(strategy: tf.distribute.Strategy) -> None:
    check_mean_of_thirds(strategy)
    check_memory_of_all(strategy)
