"""Distances against explicit differences, their gradients at zero."""

import math

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.losses import distances
from tests.losses.oracle import batch

EXPLICIT = {
    "euclidean": lambda u, v: math.sqrt(sum((u - v) ** 2)),
    "squared": lambda u, v: sum((u - v) ** 2),
    "cosine": lambda u, v: u @ v / math.sqrt((u @ u) * (v @ v)),
    "dot": lambda u, v: u @ v,
}


@pytest.mark.parametrize("name", EXPLICIT)
@pytest.mark.parametrize("with_references", [False, True])
def test_pairwise_distances_match_numpy(name, with_references):
    x = batch([0] * 5)
    refs = batch([0] * 3, seed=1) if with_references else None
    columns = x if refs is None else refs
    expected = [[EXPLICIT[name](u, v) for v in columns] for u in x]
    arguments = [v.astype("float32") for v in (x, refs) if v is not None]
    metric = distances.get(name)
    actual = metric.pairwise(*arguments)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-6)
    sign = -1 if metric.larger_is_closer else 1
    np.testing.assert_array_equal(metric.between(*arguments), sign * actual)
    assert metric.larger_is_closer == (name in ("cosine", "dot"))


@pytest.mark.parametrize("name", EXPLICIT)
def test_unit_euclidean_recovers_the_distance_of_unit_rows(name):
    x = distances.l2_normalize(batch([0] * 6).astype("float32"))
    metric = distances.get(name)
    actual = metric.unit_euclidean(metric.between(x))
    expected = distances.euclidean_distance(x)
    off_diagonal = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(
        np.array(actual)[off_diagonal],
        np.array(expected)[off_diagonal],
        rtol=1e-5,
    )


@pytest.mark.parametrize("name", ["euclidean", "squared"])
def test_distance_to_itself_is_exactly_zero_without_a_gradient(name):
    x = tf.constant(1e3 * batch([0] * 4), "float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        diagonal = tf.linalg.diag_part(distances.get(name).pairwise(x))
    np.testing.assert_array_equal(diagonal, np.zeros(4))
    np.testing.assert_array_equal(tape.gradient(diagonal, x), np.zeros((4, 5)))


@pytest.mark.parametrize("name", EXPLICIT)
def test_equal_and_zero_rows_have_finite_gradients(name):
    row = batch([0])[0]
    x = tf.constant(np.stack([row, row, 0 * row, 0 * row]), "float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = distances.get(name).pairwise(x)
    assert np.isfinite(value).all()
    assert np.isfinite(tape.gradient(value, x)).all()


def test_close_points_never_have_a_negative_or_nan_distance():
    x = batch([0] * 50, dim=64).astype("float32")
    x = np.concatenate([x, x * (1 + 1e-7), x + 1e-6]).astype("float32")
    euclidean = np.array(distances.euclidean_distance(x))
    assert (euclidean >= 0).all()


def test_nan_is_not_hidden():
    x = batch([0] * 3).astype("float32")
    x[1, 0] = np.nan
    for name in EXPLICIT:
        values = np.array(distances.get(name).pairwise(x, x))
        assert np.isnan(values[1]).all()
        assert np.isnan(values[:, 1]).all()
        assert np.isfinite(values[[0, 0, 2, 2], [0, 2, 0, 2]]).all()


@pytest.mark.parametrize(
    ("distance", "expected"),
    [(0.5, 91.4), (1.41, -0.3), (1.8, 29.7), (1.99, 201)],
)
def test_log_inverse_density_matches_its_formula(distance, expected):
    # By hand: −126 ln d − 62.5 ln(1 − d²/4).
    actual = distances.log_inverse_density(np.float32(distance), 128)
    by_hand = -126 * math.log(distance) - 62.5 * math.log(1 - distance**2 / 4)
    assert float(actual) == pytest.approx(by_hand, rel=1e-4, abs=1e-3)
    assert by_hand == pytest.approx(expected, abs=1.0)


def test_density_matches_random_points():
    # Distances of random points on the sphere in 5 dimensions: their
    # histogram is proportional to q.
    generator = np.random.default_rng(0)
    points = generator.normal(size=(2, 200_000, 5))
    points /= np.linalg.norm(points, axis=2, keepdims=True)
    sample = np.linalg.norm(points[0] - points[1], axis=1)
    counts, edges = np.histogram(sample, bins=20, range=(0.2, 1.9))
    middle = ((edges[1:] + edges[:-1]) / 2).astype("float32")
    density = np.exp(-np.array(distances.log_inverse_density(middle, 5)))
    ratio = counts / counts.sum() / (density / density.sum())
    np.testing.assert_allclose(ratio, np.ones(20), atol=0.1)
