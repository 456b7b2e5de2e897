"""HIST against the algorithm of the authors' code."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.losses import HISTLoss
from tests.losses.oracle import batch, check_slopes, unit

LABELS = np.array([0, 2, 2, 0, 1, 2, 0])  # class 3 is not in the batch
CLASSES, D = 4, 5


def cross_entropy(logits):
    logits = logits - logits.max(axis=1, keepdims=True)
    target_logits = logits[np.arange(len(LABELS)), LABELS]
    return (np.log(np.exp(logits).sum(axis=1)) - target_logits).mean()


def hist(x, means, log_variances, w1, w2, b1, gamma, beta, b2):
    x, means = unit(x), unit(means)
    variances = np.exp(np.clip(log_variances, 0, 6))
    d = (((x[:, None] - means) ** 2) / variances).sum(axis=2)
    present = np.unique(LABELS)
    class_mask = LABELS[:, None] == present
    h = np.where(class_mask, 1.0, np.exp(-0.9 * d[:, present]))
    of_nodes = np.diag(h.sum(axis=1) ** -0.5)
    graph = of_nodes @ h @ np.diag(1 / h.sum(axis=0)) @ h.T @ of_nodes
    hidden = graph @ (x @ w1 + b1)
    hidden = (hidden - hidden.mean(0)) / np.sqrt(hidden.var(0) + 1e-5)
    hidden = gamma * hidden + beta
    hidden = np.where(hidden > 0, hidden, 0.1 * hidden)
    out = graph @ (hidden @ w2 + b2)
    return cross_entropy(-32 * d) + 0.7 * cross_entropy(out)


def test_value_and_all_gradients_match_finite_differences():
    loss = HISTLoss(CLASSES, weight=0.7, hidden_dim=6)
    owner = keras.layers.Layer()
    loss.build(owner, D)
    variables = owner.trainable_variables
    assert all("/loss/" in v.path for v in variables)
    values = [batch([0] * len(LABELS), D)]
    for seed, variable in enumerate(variables):
        rows = batch([0] * int(np.prod(variable.shape)), 1, seed=seed)
        values.append(rows.reshape(variable.shape))
        variable.assign(values[-1].astype("float32"))
    x = tf.constant(values[0], "float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        mean = tf.reduce_mean(loss.per_example(LABELS, x))
    gradients = tape.gradient(mean, [x, *(v.value for v in variables)])
    assert float(mean) == pytest.approx(hist(*values), rel=1e-4)
    for i, gradient in enumerate(gradients):

        def by(value, i=i):
            return hist(*values[:i], value, *values[i + 1 :])

        gradient = tf.convert_to_tensor(gradient).numpy()
        check_slopes(gradient, by, values[i], 3e-4)


def test_weights_of_equal_shape_start_different():
    loss = HISTLoss(CLASSES, hidden_dim=CLASSES)
    loss.build(keras.layers.Layer(), CLASSES)
    for one, other in (
        (loss.proxies, loss.log_variances),
        (loss.first, loss.second),
    ):
        assert np.abs(one - other).max() > 0.1
