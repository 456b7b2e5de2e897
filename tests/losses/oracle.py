"""Independent references: float64 loops and central differences."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dml.losses import MetricLoss

Array = np.ndarray

LABELS = {
    "balanced": [0, 0, 0, 1, 1, 1, 2, 2, 2],
    "unbalanced": [0, 0, 0, 0, 1, 1, 2, 3],
    "pairs": [5, 9, 5, 9, 7, 7],
}
"""Batches with ordinary and with lonely anchors."""

DEGENERATE = {
    "no positives": [0, 1, 2, 3],
    "one class": [4, 4, 4, 4],
    "one example": [3],
    "two alike": [1, 1],
    "two unlike": [1, 2],
}
"""Batches that lack all or half of what a loss needs."""


def batch(labels: list[int], dim: int = 5, seed: int = 0) -> Array:
    """Random float64 embeddings, not normalized."""
    generator = np.random.default_rng([seed, len(labels)])
    return generator.normal(size=(len(labels), dim))


def unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def sets(labels: list[int]) -> list[tuple[int, list[int], list[int]]]:
    """(anchor, its positives, its negatives), anchor by anchor."""
    count = range(len(labels))
    return [
        (
            a,
            [p for p in count if p != a and labels[p] == labels[a]],
            [n for n in count if labels[n] != labels[a]],
        )
        for a in count
    ]


def check_slopes(
    gradient: Array,
    function: Callable[[Array], float],
    x: Array,
    rtol: float = 5e-5,
) -> None:
    """A gradient's central differences, in float64, along five directions.

    No error of a gradient is at right angles to all of these.
    """
    scale = float(np.linalg.norm(gradient))
    for k in range(5):
        direction = batch([0] * len(x), x[0].size, seed=100 + k)
        direction = (direction / np.linalg.norm(direction)).reshape(x.shape)
        step = 1e-6 * direction
        slope = (function(x + step) - function(x - step)) / 2e-6
        error = abs((gradient * direction).sum() - slope)
        assert error <= rtol * scale + 1e-7, (k, slope, error)


def value_and_gradient(
    loss: MetricLoss, labels: Any, embeddings: Any, **references: Any
) -> tuple[Array, Array]:
    """The (B,) values, and the gradient of their mean."""
    embeddings = tf.convert_to_tensor(embeddings)
    with tf.GradientTape() as tape:
        tape.watch(embeddings)
        values = loss.per_example(labels, embeddings, **references)
        mean = tf.reduce_mean(values)
    gradient = tape.gradient(mean, embeddings)
    return values.numpy(), tf.cast(gradient, "float32").numpy()


def step_of(loss: MetricLoss) -> Callable[..., tuple[Any, Any]]:
    """(labels, embeddings) → values and gradient of their mean."""

    def step(labels: Any, x: Any) -> tuple[Any, Any]:
        labels, x = tf.convert_to_tensor(labels), tf.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            values = loss.per_example(labels, x)
            mean = tf.reduce_mean(values)
        return values, tape.gradient(mean, x)

    return step


def compiled(step: Callable[..., Any], jit: bool = False) -> Any:
    """A step as a graph for float32 batches of any size."""
    return tf.function(
        step,
        input_signature=[
            tf.TensorSpec([None], "int64"),
            tf.TensorSpec([None, 5], "float32"),
        ],
        jit_compile=jit,
        autograph=False,
    )


def check_against_loop(
    loss: MetricLoss,
    loop: Callable[[list[int], Array], float],
    labels: list[int],
    dim: int = 5,
    rtol: float = 2e-5,
    seed: int = 0,
) -> None:
    """Value and gradient of a loss equal those of a float64 loop.

    Args:
        loss: The loss, which gets raw float32 embeddings.
        loop: `(labels, embeddings) -> float`, on raw embeddings too.
        labels: The class of every example.
        dim: Dimensions of the embeddings.
        rtol: Tolerance relative to the largest entry.
        seed: Of the embeddings.
    """
    x = batch(labels, dim, seed)
    values, gradient = value_and_gradient(
        loss, np.array(labels), x.astype("float32")
    )
    assert values.shape == (len(labels),)
    assert values.dtype == np.float32
    expected = loop(labels, x)
    np.testing.assert_allclose(values.mean(), expected, rtol=rtol, atol=1e-7)
    check_slopes(gradient, lambda z: loop(labels, z), x, rtol)


def contrastive(x: Array, labels: Any) -> float:
    """Of unit rows, the sum over ordered pairs, divided by B (ABE, Eq. 10)."""
    total = 0.0
    for i, j in itertools.permutations(range(len(x)), 2):
        squared = np.sum((x[i] - x[j]) ** 2)
        total += squared if labels[i] == labels[j] else max(0.0, 1 - squared)
    return total / len(x)


def log_sum(values, weight, one=0.0):
    """log(one + Σ w exp x), −∞ where there is nothing to sum."""
    total = one + sum(
        w * math.exp(x) for x, w in zip(values, weight, strict=True)
    )
    return math.log(total) if total else -math.inf


def softplus(x):
    return math.log1p(math.exp(x)) if x > -700 else 0.0
