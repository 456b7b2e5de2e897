"""Heads against NumPy: outputs and all gradients."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.methods import (
    EmbeddingHead,
    GroupedHead,
    LearnersHead,
    SlicedHead,
    TaskHead,
)
from keras_dml.model.head import Head
from tests.losses.oracle import check_slopes, unit

SHAPE = (3, 2, 2, 5)  # B, h, w, C
Arrays = list[np.ndarray]


def embedding(x: np.ndarray, weights: Arrays) -> dict[str, np.ndarray]:
    kernel, bias = weights
    return {"embedding": unit(x.mean((1, 2)) @ kernel + bias)}


def standardized(x: np.ndarray, weights: Arrays) -> dict[str, np.ndarray]:
    """The maximum, layer normalization, and the activation."""
    kernel, bias = weights
    pooled = x.max((1, 2))
    centered = pooled - pooled.mean(1, keepdims=True)
    variance = (centered**2).mean(1, keepdims=True)
    y = centered / np.sqrt(variance + 1e-5) @ kernel + bias
    return {"embedding": unit(y), "activation": y}


def slices(x: np.ndarray, weights: Arrays) -> dict[str, np.ndarray]:
    """D 7 and K 3: slices of 3, 3 and 1; the last is padded."""
    pooled = x.mean((1, 2))
    parts = [
        unit(pooled @ weights[i] + weights[i + 1])
        for i in range(0, len(weights), 2)
    ]
    padded = [np.pad(p, ((0, 0), (0, 3 - p.shape[1]))) for p in parts]
    whole = np.concatenate(parts, axis=1) / np.sqrt(3)
    return {"embedding": whole, "parts": np.stack(padded, axis=1)}


def learners(x: np.ndarray, weights: Arrays) -> dict[str, np.ndarray]:
    """K 3, each of 2 units, unit together and each by itself."""
    kernel, bias = weights
    y = x.mean((1, 2)) @ kernel + bias
    sub = np.stack([y[:, :2], y[:, 2:4], y[:, 4:]], axis=1)
    return {"embedding": unit(y), "parts": unit(sub), "sub_embeddings": sub}


def tasks(x: np.ndarray, weights: Arrays) -> dict[str, np.ndarray]:
    """Two tasks of 3 units, which weigh 0.5 and 2 in the whole."""
    pooled = x.mean((1, 2))
    first, second = (unit(pooled @ weights[i] + weights[i + 1]) for i in (0, 2))
    whole = unit(np.concatenate([0.5 * first, 2 * second], axis=1))
    return {"embedding": whole, "parts": np.stack([first, second], axis=1)}


def groups(x: np.ndarray, weights: Arrays) -> dict[str, np.ndarray]:
    """Eq. 5 to 8 of attentive grouping: convolve, attend, sum."""
    queries, key_kernel, value_kernel = weights
    batch, height, width, _ = x.shape
    positions = x.reshape(batch, height * width, -1)
    keys, values = positions @ key_kernel, positions @ value_kernel
    scores = np.exp(np.einsum("kp,bnk->bpn", queries, keys))
    attention = scores / scores.sum(axis=2, keepdims=True)
    parts = unit(attention @ values)
    count = queries.shape[1]
    return {
        "embedding": parts.reshape(batch, -1) / np.sqrt(count),
        "parts": parts,
        "attention": attention.transpose(0, 2, 1).reshape(
            batch, height, width, count
        ),
    }


HEADS: dict[str, tuple[Head, Callable]] = {
    "baseline": (EmbeddingHead(4), embedding),
    "layer_norm": (
        EmbeddingHead(4, layer_norm=True, activation=True, pooling="max"),
        standardized,
    ),
    "divide_and_conquer": (SlicedHead(7, 3), slices),
    "dcml": (LearnersHead(6, 3), learners),
    "diva": (TaskHead(["one", "two"], 3, [0.5, 2.0]), tasks),
    "attentive_grouping": (GroupedHead(6, 2, key_dim=3), groups),
}


@pytest.mark.parametrize("name", HEADS)
def test_outputs_and_gradients_match_numpy(name) -> None:
    """Gradients are those by the features and by every weight."""
    head, by_hand = HEADS[name]
    rng = np.random.default_rng(0)
    if not head.built:
        head.build(SHAPE)
        head.built = True
    for weight in head.trainable_variables:
        weight.assign(rng.normal(size=weight.shape))
    x = rng.normal(size=SHAPE).astype("float32")
    point = [x, *(w.numpy() for w in head.trainable_variables)]
    point = [v.astype("float64") for v in point]
    expected = by_hand(point[0], point[1:])
    towards = {k: rng.normal(size=v.shape) for k, v in expected.items()}

    inputs = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = head(inputs)
        total = sum(
            tf.reduce_sum(outputs[k] * towards[k].astype("float32"))
            for k in expected
        )
    weights = [w.value for w in head.trainable_variables]
    gradients = tape.gradient(total, [inputs, *weights])

    assert set(outputs) == set(expected)
    for key, value in expected.items():
        np.testing.assert_allclose(outputs[key], value, atol=1e-5)
    for i, gradient in enumerate(gradients):

        def value(v, i=i) -> float:
            moved = [*point[:i], v, *point[i + 1 :]]
            outputs = by_hand(moved[0], moved[1:])
            return sum(np.sum(outputs[k] * towards[k]) for k in outputs)

        check_slopes(gradient.numpy(), value, point[i], rtol=1e-3)
