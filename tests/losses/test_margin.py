"""Margin loss: a learned β, and errors."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.losses import MarginLoss
from tests.losses.oracle import (
    LABELS,
    batch,
    sets,
    unit,
)


def semihard_triplets(labels, x):
    triplets = []
    for a, same, other in sets(labels):
        for p in same if other else []:
            d = {n: np.linalg.norm(x[a] - x[n]) for n in other}
            beyond = [n for n in other if d[n] > np.linalg.norm(x[a] - x[p])]
            n = min(beyond, key=d.get) if beyond else max(other, key=d.get)
            triplets.append((a, p, n))
    return triplets


def terms_of(x, triplets, beta, alpha=0.2):
    terms = []
    for a, p, n in triplets:
        excess = max(0.0, alpha + np.linalg.norm(x[a] - x[p]) - beta[a])
        lack = max(0.0, alpha + beta[a] - np.linalg.norm(x[a] - x[n]))
        terms.append((float(excess), float(lack)))
    return terms


def owned(loss, dim=5):
    owner = keras.layers.Layer()
    loss.build(owner, dim)
    return loss, owner


def test_learned_beta_per_class_has_the_gradient_of_a_loop():
    labels = LABELS["balanced"]
    x = unit(batch(labels))
    loss, owner = owned(
        MarginLoss(learn_beta=True, num_classes=4, mining="semihard", nu=0.01)
    )
    (variable,) = owner.trainable_variables
    assert "/loss/" in variable.path
    betas = np.array([0.8, 1.1, 1.3, 5.0], "float32")
    variable.assign(betas)

    def loop(betas):
        of_anchor = [betas[label] for label in labels]
        terms = terms_of(x, semihard_triplets(labels, x), of_anchor)
        count = sum((p > 0) + (n > 0) for p, n in terms)
        penalty = 0.01 * sum(of_anchor) / len(labels)
        return sum(p + n for p, n in terms) / count + penalty

    with tf.GradientTape() as tape:
        value = loss(np.array(labels), x.astype("float32"))
    gradient = tape.gradient(value, variable.value)
    gradient = tf.convert_to_tensor(gradient).numpy()
    assert float(value) == pytest.approx(loop(betas), rel=1e-5)
    expected = [
        (loop(betas + shift) - loop(betas - shift)) / 2e-3
        for shift in 1e-3 * np.eye(4)
    ]
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-6)
    assert gradient[3] == 0


def test_unknown_class_raises_and_is_nan_in_a_graph():
    loss, _ = owned(MarginLoss(learn_beta=True, num_classes=3))
    labels = np.array([0, -1, 1, 3])
    x = batch(list(labels)).astype("float32")
    with pytest.raises(ValueError, match=r"\[0, num_classes\).*a label"):
        loss.per_example(labels, x)
    graph = tf.function(loss.per_example, autograph=False)
    assert np.isnan(graph(labels, x)).tolist() == [False, True, False, True]


def test_num_classes_requires_learn_beta():
    with pytest.raises(ValueError, match="Use learn_beta=True"):
        MarginLoss(num_classes=3)
