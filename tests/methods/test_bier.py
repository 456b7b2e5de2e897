"""BIER against NumPy loops over learners and pairs."""

from itertools import combinations

import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones, methods
from keras_dml.methods import _bier as bier
from tests.methods.test_contract import batch

LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 3])
ALPHA, THRESHOLD = 2.0, 0.5
SCALES = {True: 1.0, False: 25.0}  # Of positive and of negative pairs.


def model_of(**kwargs):
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    arguments = {"embedding_dim": 16, "regressor_units": 7, **kwargs}
    return methods.bier(backbone, **arguments)


def unit_parts(seed: int = 0, learners: int = 3) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(len(LABELS), learners, 5))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def slope_of(similarity: float, same: bool) -> float:
    """ℓ′(s) of binomial deviance: of −log sigmoid(±αβ (s − m))."""
    scale = ALPHA * SCALES[same] * (1 if same else -1)
    return -scale / (1 + np.exp(scale * (similarity - THRESHOLD)))


def loss_of(similarity: float, same: bool) -> float:
    scale = ALPHA * SCALES[same] * (1 if same else -1)
    return np.log1p(np.exp(-scale * (similarity - THRESHOLD)))


def boosted_by_hand(
    parts: np.ndarray, slope: str
) -> tuple[float, np.ndarray, np.ndarray]:
    """Algorithm 1, pair by pair: loss, gradient by parts, and weights."""
    size, learners, _ = parts.shape
    same = LABELS[:, None] == LABELS[None, :]
    counts = {
        True: same.sum() - size,
        False: (~same).sum(),
    }
    total, gradient = 0.0, np.zeros_like(parts)
    weights = np.ones((learners + 1, size, size))
    for i in range(size):
        for j in range(size):
            if i == j:
                continue
            kind = bool(same[i, j])
            together = 0.0
            for m in range(learners):
                f, g = parts[i, m], parts[j, m]
                share = weights[m, i, j] / counts[kind] / learners
                total += share * loss_of(f @ g, kind)
                step = share * slope_of(f @ g, kind)
                gradient[i, m] += step * (g - f * (f @ g))
                gradient[j, m] += step * (f - g * (f @ g))
                eta = 2 / (m + 2)  # m counts from 0
                together = (1 - eta) * together + eta * (f @ g)
                weight = abs(slope_of(together, kind))
                if slope == "exponent":
                    weight /= ALPHA * SCALES[kind]
                weights[m + 1, i, j] = weight
    return total, gradient, weights


@pytest.mark.parametrize("slope", ["similarity", "exponent"])
def test_boosting_matches_algorithm_1(slope) -> None:
    parts = unit_parts()
    loss, gradient, _ = boosted_by_hand(parts, slope)
    objective = model_of(group_sizes=[5, 5, 5], slope=slope).objective
    x = tf.constant(parts, "float32")
    outputs = {"parts": x, "activations": tf.zeros((len(x), 16))}
    with tf.GradientTape() as tape:
        tape.watch(x)
        terms = objective(outputs, {"label": tf.constant(LABELS)})
        mean = tf.reduce_mean(terms["metric"])
    np.testing.assert_allclose(mean, loss, rtol=1e-5)
    actual = tape.gradient(mean, x)
    np.testing.assert_allclose(actual, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("learners", [1, 2, 3, 6])
def test_boosting_weights_unroll_the_recursion(learners) -> None:
    weights = np.zeros(learners)
    for m in range(1, learners + 1):
        eta = 2 / (m + 1)
        weights *= 1 - eta
        weights[m - 1] += eta
    np.testing.assert_allclose(bier.boosting_weights(learners), weights)
    assert sum(weights) == pytest.approx(1)


def test_embedding_similarity_equals_the_boosted_similarity() -> None:
    model = model_of(embedding_dim=32)
    x, _ = batch()
    outputs = {k: v.numpy() for k, v in model.outputs_of(x).items()}
    assert outputs["parts"].shape == (12, 3, 16)
    together = 0.0
    for m, size in enumerate((6, 10, 16)):
        part = outputs["parts"][:, m]
        assert not part[:, size:].any()
        np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1, rtol=1e-5)
        eta = 2 / (m + 2)
        together = (1 - eta) * together + eta * (part @ part.T)
    embedding = outputs["embedding"]
    np.testing.assert_allclose(embedding @ embedding.T, together, atol=1e-5)


@pytest.mark.parametrize(
    ("dim", "group_sizes", "expected"),
    [
        (512, (96, 160, 256), [96, 160, 256]),
        (128, (96, 160, 256), [24, 40, 64]),
        (10, (96, 160, 256), [2, 3, 5]),
        (1024, (1, 2, 3), [171, 341, 512]),
        (8, (1,), [8]),
    ],
)
def test_groups_split_dimensions_in_proportion(
    dim, group_sizes, expected
) -> None:
    assert bier.split_dimensions(dim, group_sizes) == expected


def test_activation_loss_is_the_squared_outer_product() -> None:
    rng = np.random.default_rng(2)
    groups = [rng.normal(size=(4, size)) for size in (2, 3, 5)]
    expected = np.zeros(4)
    for row in range(4):
        for f, g in combinations(groups, 2):
            outer = np.outer(f[row], g[row])
            expected[row] += np.mean(outer**2)
    np.testing.assert_allclose(bier.activation_loss(groups), expected)


def test_regressors_and_groups_are_adversaries() -> None:
    model = model_of(independence="adversarial")
    objective = model.objective
    rng = np.random.default_rng(3)
    x = tf.constant(rng.normal(size=(8, 16)), "float32")
    weights = [v for r in objective.regressors for v in r.trainable_variables]
    assert len(weights) == 12

    def correlation(x: tf.Tensor) -> tf.Tensor:
        groups = tf.split(x, [3, 5, 8], axis=1)
        total = 0.0
        for (i, j), k in zip([(0, 1), (0, 2), (1, 2)], range(3), strict=True):
            w, b, v, c = weights[4 * k : 4 * k + 4]
            estimate = tf.nn.relu(groups[j] @ w + b) @ v + c
            total += tf.reduce_mean((groups[i] * estimate) ** 2, axis=1)
        return total

    outputs = {"parts": tf.zeros((8, 3, 8)), "activations": x}
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        plain = correlation(x)
        loss = objective(outputs, {"label": tf.constant(LABELS)})
        loss = loss["independence"]
    np.testing.assert_allclose(loss, -plain, rtol=1e-5)
    # A step down the loss: groups lower the correlation, regressors raise it.
    np.testing.assert_allclose(
        tape.gradient(loss, x), tape.gradient(plain, x), rtol=1e-4, atol=1e-6
    )
    for weight in weights:
        np.testing.assert_allclose(
            tape.gradient(loss, weight),
            -tape.gradient(plain, weight).numpy(),
            rtol=1e-4,
            atol=1e-6,
        )


@pytest.mark.parametrize("independence", ["activation", "adversarial"])
def test_independence_trains_the_embedding_alone(independence) -> None:
    model = model_of(independence=independence)
    x, targets = batch()
    with tf.GradientTape() as tape:
        terms = model.objective(model.outputs_of(x, training=True), targets)
        loss = tf.reduce_sum(terms["independence"])
    moved = {
        v.path
        for v, g in zip(
            model.trainable_variables,
            tape.gradient(loss, model.trainable_variables),
            strict=True,
        )
        if g is not None and np.any(g)
    }
    assert "head/dense/kernel" in moved
    assert not any(p.startswith(("head/dense/bias", "conv")) for p in moved)
    assert len(moved) == (1 if independence == "activation" else 13)


def test_single_group_equals_the_plain_loss() -> None:
    model = model_of(group_sizes=[1])
    x, targets = batch()
    outputs = model.outputs_of(x)
    terms = model.objective(outputs, targets)
    loss = model.objective.loss
    expected = loss.per_example(targets["label"], outputs["embedding"])
    np.testing.assert_allclose(terms["metric"], expected, rtol=1e-5)
    assert not np.any(terms["independence"])


def test_penalty_keeps_rows_at_unit_length() -> None:
    kernel = np.random.default_rng(4).normal(size=(3, 5))
    rows = [float(kernel[:, r] @ kernel[:, r]) for r in range(5)]
    expected = 0.5 * np.mean([(row - 1) ** 2 for row in rows])
    assert float(bier.UnitRows(0.5)(kernel)) == pytest.approx(expected)
    # One penalty of the embedding, two of each regressor.
    assert len(model_of().losses) == 1
    assert len(model_of(independence="adversarial").losses) == 7


def test_other_losses_are_weighted_alike() -> None:
    """The first learner has the plain loss; later ones are weighted."""
    parts = tf.constant(unit_parts(5), "float32")
    outputs = {"parts": parts, "activations": tf.zeros((8, 16))}
    targets = {"label": tf.constant(LABELS)}
    objective = model_of(loss="triplet").objective
    loss = objective.loss
    similarity = parts[:, 0] @ tf.transpose(parts[:, 0])
    expected = loss.per_example(LABELS, parts[:, 0])
    for m in (1, 2):
        weights = objective.pair_weights(similarity)
        expected += loss.per_example(LABELS, parts[:, m], pair_weights=weights)
        eta = 2 / (m + 2)
        learner = parts[:, m] @ tf.transpose(parts[:, m])
        similarity = (1 - eta) * similarity + eta * learner
    actual = objective(outputs, targets)["metric"]
    np.testing.assert_allclose(actual, expected / 3, rtol=1e-5)
