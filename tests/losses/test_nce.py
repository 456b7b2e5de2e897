"""NCE and DaNCE against loops."""

import math

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.losses import nce
from tests.losses.oracle import batch, check_slopes, unit

QUERIES = unit(batch([0] * 4, dim=6))
KEYS = unit(batch([0] * 4, dim=6, seed=1))
QUEUE = unit(np.concatenate([QUERIES[:2] + 0.1, batch([0] * 5, dim=6, seed=2)]))
FILLED = np.array([1, 1, 0, 1, 1, 1, 1], bool)


def inverse_density(d, n=6):
    return 1 / (d ** (n - 2) * (1 - d * d / 4) ** ((n - 3) / 2))


def loop(queries, weights, positive, temperature=0.2):
    total = 0.0
    for i, query in enumerate(queries):
        positive_term = math.exp(query @ KEYS[i] / temperature)
        denominator = positive_term if positive else 0.0
        for n, key in enumerate(QUEUE):
            if FILLED[n]:
                denominator += math.exp(
                    weights[i, n] * (query @ key) / temperature
                )
        total += -math.log(positive_term / denominator)
    return total / len(queries)


def paper_weights(limit):
    distances = np.linalg.norm(QUERIES[:, None] - QUEUE, axis=2)
    return np.minimum(limit, inverse_density(distances))


def weights_along(axis):
    distances = np.linalg.norm(QUERIES[:, None] - QUEUE, axis=2)
    weights = inverse_density(np.maximum(distances, 0.5))
    weights = np.where((distances <= 1.4) & FILLED, weights, 0.0)
    total = weights.sum(axis=axis, keepdims=True)
    return np.where(total > 0, weights / np.maximum(total, 1e-30), 0.0)


CASES = {
    "plain": ({}, np.ones((4, 7)), True),
    "plain, Eq. 5": (
        {"positive_in_denominator": False},
        np.ones((4, 7)),
        False,
    ),
    "paper": ({"weighting": "paper", "limit": 2.0}, paper_weights(2.0), False),
    "queue": ({"weighting": "queue_axis"}, weights_along(1), True),
    "batch": ({"weighting": "batch_axis"}, weights_along(0), True),
}


@pytest.mark.parametrize(
    ("arguments", "weights", "positive"), CASES.values(), ids=CASES
)
def test_value_and_gradient_match_a_loop(arguments, weights, positive):
    queries = tf.constant(QUERIES, "float32")
    key_tensors = [tf.constant(v, "float32") for v in (KEYS, QUEUE)]
    with tf.GradientTape() as tape:
        tape.watch([queries, *key_tensors])
        values = nce(
            queries, *key_tensors, FILLED, temperature=0.2, **arguments
        )
        mean = tf.reduce_mean(values)
    assert values.shape == (4,)
    assert float(mean) == pytest.approx(
        loop(QUERIES, weights, positive), rel=1e-4
    )
    gradients = tape.gradient(mean, [queries, *key_tensors])
    check_slopes(
        gradients[0].numpy(),
        lambda q: loop(q, weights, positive),
        QUERIES,
        rtol=1e-3,
    )
    assert gradients[1:] == [None, None]


def test_cases_have_different_weights():
    assert (paper_weights(2.0) == 2.0).any()
    assert (paper_weights(2.0) < 2.0).any()
    assert (weights_along(1)[:, FILLED] == 0).any()
    assert abs(weights_along(0) - weights_along(1)).max() > 0.1


@pytest.mark.parametrize(
    "weighting", [None, "queue_axis", "batch_axis", "paper"]
)
def test_empty_queue_costs_nothing(weighting):
    queries = tf.constant(QUERIES, "float32")
    empty = np.zeros(7, bool)
    queue = np.zeros((7, 6), "float32")
    with tf.GradientTape() as tape:
        tape.watch(queries)
        values = nce(
            queries,
            KEYS.astype("float32"),
            queue,
            empty,
            weighting=weighting,
            limit=1.0,
        )
    gradient = tape.gradient(values, queries)
    np.testing.assert_array_equal(values, np.zeros(4))
    np.testing.assert_array_equal(gradient, np.zeros((4, 6)))


@pytest.mark.parametrize("weighting", ["queue_axis", "batch_axis"])
def test_weights_without_a_near_negative_are_zero(weighting):
    queries = np.eye(6, dtype="float32")[:1]
    queue = -queries
    value = nce(queries, queries, queue, weighting=weighting)
    # Logits: 1/τ for the positive, 0 for the one weightless negative.
    assert float(value[0]) == pytest.approx(math.log1p(math.exp(-10)), rel=1e-5)


def test_queue_axis_weighting_shrinks_the_gradient():
    """Checks the docstring's claim for random keys in 128 dimensions."""
    rng = np.random.default_rng(0)
    q, queue = unit(rng.normal(size=(8, 128))), rng.normal(size=(3360, 128))
    noise = rng.normal(size=q.shape)
    noise = unit(noise - np.sum(noise * q, axis=1, keepdims=True) * q)
    keys = 0.95 * q + np.sqrt(1 - 0.95**2) * noise

    def of_negatives(weighting: str | None) -> float:
        queries = tf.constant(q, "float32")
        with tf.GradientTape() as tape:
            tape.watch(queries)
            values = nce(
                queries, keys, unit(queue), temperature=0.1, weighting=weighting
            )
        # d softplus(N − P) = σ (dN − dP), and σ = 1 − exp(−value).
        share = 1 - np.exp(-values.numpy())[:, None]
        gradient = tape.gradient(values, queries) + share * keys / 0.1
        along = np.sum(gradient * q, axis=1, keepdims=True) * q
        return float(np.linalg.norm(gradient - along, axis=1).mean())

    assert of_negatives(None) == pytest.approx(0.066, rel=0.25)
    assert of_negatives("queue_axis") < of_negatives(None) / 50
