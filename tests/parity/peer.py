"""Running a loss of pytorch-metric-learning beside one of ours."""

import keras
import numpy as np
import tensorflow as tf
import torch

SHAPES = {
    "16x8, 4 a class": (np.repeat(np.arange(4), 4), 8),
    "21x16, unbalanced": (np.array([0] * 7 + [1] * 5 + [2] * 9), 16),
    "12x8, lonely anchors": (np.array([0, 0, 0, 1, 1, 2, 3, 4] + [5] * 4), 8),
    "6x8, no positives": (np.arange(6), 8),
    "6x8, one class": (np.zeros(6, int), 8),
    "1x8": (np.zeros(1, int), 8),
}
"""Batches: labels and embedding dimension."""

ORDINARY = list(SHAPES)[:2]
DEGENERATE = list(SHAPES)[3:]


def embeddings(labels, dim, seed=0):
    """Random unit float32 embeddings."""
    generator = np.random.default_rng([seed, len(labels), dim])
    x = generator.normal(size=(len(labels), dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x.astype("float32")


def ours(loss, labels, x, proxies=None):
    """Value and gradients (by embeddings, by proxies) of our loss."""
    x = tf.constant(x)
    owner = keras.layers.Layer()
    loss.build(owner, x.shape[1])
    if proxies is not None:
        owner.trainable_variables[0].assign(proxies)
    weights = [v.value for v in owner.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(labels, x)
    gradients = tape.gradient(value, [x, *weights])
    gradients = [tf.convert_to_tensor(g).numpy() for g in gradients]
    return float(value), gradients


def theirs(loss, labels, x, parameter=None, indices=None):
    """The same of theirs; `parameter` is the tensor of its weights."""
    x = torch.tensor(x, requires_grad=True)
    if indices is not None:
        indices = tuple(torch.as_tensor(i) for i in indices)
    value = loss(x, torch.tensor(labels), indices)
    value.backward()
    gradients = [x.grad] if parameter is None else [x.grad, parameter.grad]
    zeros = torch.zeros_like(x)
    return float(value.detach()), [
        (zeros if g is None else g).numpy() for g in gradients
    ]


def compare(mine, theirs, rtol=1e-5):
    """Asserts that values and gradients agree."""
    np.testing.assert_allclose(mine[0], theirs[0], rtol=rtol, atol=1e-6)
    assert len(mine[1]) == len(theirs[1])
    for ours_, theirs_ in zip(mine[1], theirs[1], strict=True):
        scale = max(np.abs(theirs_).max(), 1e-2)
        np.testing.assert_allclose(ours_, theirs_, atol=2 * rtol * scale)
