"""Spectrum and density of embeddings."""

import itertools
import math

import numpy as np
import pytest

from keras_dml.evaluation import evaluate_embeddings
from keras_dml.evaluation.embedding_space import density, pcf, spectral_decay


def test_decay_matches_a_worked_example():
    # Shares 3/4 and 1/4: KL = ½ ln(½ / ¾) + ½ ln(½ / ¼) = ½ ln(4/3).
    x = np.diag([3.0, 1.0])
    assert spectral_decay(x) == pytest.approx(0.5 * math.log(4 / 3), rel=1e-12)


def test_decay_matches_the_divergence_of_scipy():
    from scipy.stats import entropy

    x = np.random.default_rng(0).standard_normal((50, 7)) * np.arange(1, 8)
    values = np.linalg.svd(x, compute_uv=False)
    expected = entropy(np.full(7, 1 / 7), values / values.sum())
    assert spectral_decay(x) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    "x", [np.ones((9, 4)), np.eye(4)[:3], np.zeros((5, 2))]
)
def test_unused_dimensions_have_infinite_decay(x):
    assert spectral_decay(x) == math.inf


def test_density_matches_a_loop_over_all_pairs():
    rng = np.random.default_rng(1)
    x, labels = rng.standard_normal((60, 3)), rng.integers(0, 7, 60)
    labels[0] = 99
    inside = [
        math.dist(x[i], x[j])
        for i, j in itertools.combinations(range(60), 2)
        if labels[i] == labels[j]
    ]
    means = [x[labels == c].mean(0) for c in np.unique(labels)]
    between = [math.dist(a, b) for a, b in itertools.combinations(means, 2)]
    expected = np.mean(inside) / np.mean(between)
    assert density(x, labels) == pytest.approx(expected, rel=1e-12)


def test_density_without_pairs_is_undefined():
    assert math.isnan(density(np.eye(3), np.arange(3)))
    assert math.isnan(density(np.eye(3), np.zeros(3, int)))


def test_evaluate_uses_unit_vectors_for_the_cosine():
    rng = np.random.default_rng(2)
    x, labels = rng.standard_normal((40, 3)) * 5, rng.integers(0, 4, 40)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    metrics = ("spectral_decay", "density")
    cosine = evaluate_embeddings(x, labels, metrics=metrics)
    euclidean = evaluate_embeddings(
        x, labels, metrics=metrics, distance="euclidean"
    )
    assert cosine["density"] == pytest.approx(density(unit, labels), rel=1e-6)
    assert cosine["spectral_decay"] == pytest.approx(
        spectral_decay(unit), rel=1e-5
    )
    assert euclidean["density"] == pytest.approx(density(x, labels))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.999])
def test_components_match_scikit_learn(share):
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(3)
    x = rng.standard_normal((90, 12)) * 0.7 ** np.arange(12) + 5
    expected = PCA(n_components=share, svd_solver="full").fit(x).n_components_
    assert pcf(x, x=share) == expected / 12


@pytest.mark.parametrize("value", [0.0, 0.1, 1e20])
def test_equal_embeddings_have_no_components(value):
    assert math.isnan(pcf(np.full((7, 3), value), x=0.5))
