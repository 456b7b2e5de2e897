"""Projections without training, against singular values and plain loops."""

import numpy as np
import pytest

from keras_dml.evaluation import evaluate_embeddings
from keras_dml.model.projections import Projection, fit_projection, map_at_r


def distances(x: np.ndarray) -> np.ndarray:
    """Squared distances of all pairs, which no rotation changes."""
    return ((x[:, None] - x[None]) ** 2).sum(axis=-1)


def singular(x: np.ndarray, dim: int) -> np.ndarray:
    """The first principal components, by singular vectors."""
    return x @ np.linalg.svd(x, full_matrices=False)[2][:dim].T


def test_map_at_r_matches_evaluation() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), rng.integers(1, 9, size=30))
    x = rng.normal(size=(len(labels), 5)) + 0.3 * labels[:, None] % 7
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = evaluate_embeddings(unit, labels, metrics="map@r")["map@r"]
    assert map_at_r(x, labels) == pytest.approx(expected, abs=1e-6)
    assert map_at_r(x[:3], np.arange(3)) == 0


@pytest.mark.parametrize(
    ("count", "channels"),
    [(200, 20), pytest.param(300, 600), pytest.param(700, 600)],
    ids=["all", "fewer rows than channels", "first reduced to 512"],
)
@pytest.mark.parametrize("has_bias", [True, False])
def test_pca_matches_singular_vectors(count, channels, has_bias) -> None:
    rng = np.random.default_rng(0)
    spread = np.geomspace(10, 0.1, channels)
    x = rng.normal(size=(count, channels)) * spread + 3
    projection = fit_projection(x, None, 8, ["pca"], has_bias)
    expected = singular(x - x.mean(axis=0) if has_bias else x, 8)
    assert projection.rank == 8
    np.testing.assert_allclose(
        distances(projection(x)), distances(expected), rtol=1e-6, atol=1e-6
    )
    assert has_bias == bool(projection.center.any())


def drawn(
    classes: int, images: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Classes differ in 8 directions of 40, by less than all images vary."""
    labels = np.repeat(np.arange(classes), images)
    x = rng.normal(size=(len(labels), 40))
    x[:, 8:] *= 6
    x[:, :8] += 3 * rng.normal(size=(classes, 8))[labels]
    return x, labels


def test_whitening_finds_directions_that_pca_leaves_out() -> None:
    rng = np.random.default_rng(0)
    x, labels = drawn(30, 10, rng)
    unseen, unseen_labels = drawn(20, 10, rng)
    pca = fit_projection(x, labels, 8, ["pca"])
    best = fit_projection(x, labels, 8)
    assert best.name.startswith("whitening")
    assert map_at_r(pca(unseen), unseen_labels) < 0.1
    assert map_at_r(best(unseen), unseen_labels) > 0.6


def test_pca_is_chosen_where_classes_vary_most_in_their_means() -> None:
    """Too few images in too many directions tell nothing of their variance."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 2)
    means = np.zeros((12, 40))
    means[:, :6] = 5 * rng.normal(size=(12, 6))
    x = means[labels] + rng.normal(size=(24, 40)) * np.geomspace(1, 0.1, 40)
    assert fit_projection(x, labels, 4).name.startswith("PCA")


def test_label_sets_leave_pca() -> None:
    x = np.random.default_rng(0).normal(size=(20, 4))
    projection = fit_projection(x, np.ones((20, 3), bool), 2)
    assert projection.name == "PCA"


@pytest.mark.parametrize(
    ("change", "rank"),
    [
        (lambda x: x[:5], 4),
        (lambda x: x[:1], 0),
        (lambda x: x[:0], 0),
        (lambda x: np.ones_like(x) * [0.1, 0.7, *range(10)], 0),
        (lambda x: np.where(np.arange(40)[:, None] < 3, np.nan, x), 6),
        (lambda x: np.full_like(x, np.inf), 0),
    ],
    ids=["five rows", "one row", "no row", "constant", "NaN", "infinite"],
)
def test_rank_follows_the_finite_rows(change, rank) -> None:
    rng = np.random.default_rng(0)
    x = change(rng.normal(size=(40, 12)))
    labels = np.repeat(np.arange(20), 2)[: len(x)]
    projection = fit_projection(x, labels, 6)
    assert isinstance(projection, Projection)
    assert projection.rank == rank
    assert np.isfinite(projection.kernel).all()
    assert np.isfinite(projection.center).all()
    assert not projection.kernel[:, rank:].any()
