"""Losses of batches with equal images do not depend on rounding."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses

LABELS = np.repeat(np.arange(8), 4)

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "squared": ("contrastive", {}),
    "euclidean": ("contrastive", {"distance": "euclidean"}),
    "cosine": (
        "contrastive",
        {"distance": "cosine", "positive_margin": 1.0, "negative_margin": 0.3},
    ),
    "two powers": ("contrastive", {"power": 2, "negative_margin": 2.0}),
    "margin": ("margin", {"alpha": 0.2, "beta": 0.2}),
    "triplet": (
        "triplet",
        {"margin": 0.0, "mining": "all", "reduction": "mean_nonzero"},
    ),
}


def batch(dim: int = 32) -> np.ndarray:
    """Unit rows, float64, each twice; some are orthogonal."""
    rows = np.random.default_rng(0).normal(size=(16, dim))
    rows[:4] = 0.0
    rows[:4, :4] = np.eye(4)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.repeat(rows, 2, axis=0)


def rotation(seed: int, dim: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))[0]


def contrastive(x: np.ndarray, distance: str = "squared", **kw: Any) -> float:
    """The mean of the positive terms and that of the negative ones."""
    cosines = np.round(x @ x.T, 12)
    d = {
        "squared": 2 - 2 * cosines,
        "euclidean": np.sqrt(np.maximum(2 - 2 * cosines, 0)),
        "cosine": -cosines,
    }[distance]
    sign = -1 if distance == "cosine" else 1
    near = sign * kw.get("positive_margin", 0.0)
    far = sign * kw.get("negative_margin", 1.0)
    one = ~np.eye(len(x), dtype=bool)
    same = LABELS[:, None] == LABELS
    total = 0.0
    for terms in (d[same & one] - near, far - d[~same]):
        terms = terms[terms > 1e-9] ** kw.get("power", 1)
        total += terms.mean() if len(terms) else 0.0
    return total


@pytest.mark.parametrize("dim", [32, 512])
@pytest.mark.parametrize(
    "case", [k for k, v in CASES.items() if v[0] == "contrastive"]
)
def test_contrastive_of_equal_rows_is_exact_in_every_rotation(
    case, dim
) -> None:
    _, kwargs = CASES[case]
    x, loss = batch(dim), losses.ContrastiveLoss(**kwargs)
    expected = contrastive(x, **kwargs)
    for seed in range(8):
        rotated = (x @ rotation(seed, dim)).astype("float32")
        assert float(loss(LABELS, rotated)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_rotation_of_the_batch_rotates_the_gradient(case) -> None:
    name, kwargs = CASES[case]
    x, loss = batch(), losses.get({"name": name, **kwargs})
    values, gradients = [], []
    for seed in range(8):
        turn = rotation(seed, 32)
        rotated = tf.constant((x @ turn).astype("float32"))
        with tf.GradientTape() as tape:
            tape.watch(rotated)
            value = loss(LABELS, rotated)
        values.append(float(value))
        gradients.append(tape.gradient(value, rotated).numpy() @ turn.T)
    np.testing.assert_allclose(values, values[0], rtol=1e-5)
    size = np.abs(gradients[0]).max()
    for other in gradients[1:]:
        np.testing.assert_allclose(other, gradients[0], atol=1e-3 * size)
