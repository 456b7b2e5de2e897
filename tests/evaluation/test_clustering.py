"""K-means and agreement with classes."""

import itertools
import math

import numpy as np
import pytest

from keras_dml.evaluation import evaluate_embeddings, kmeans
from keras_dml.evaluation.clustering import ami, f1, nmi


def bunches(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 8, 300)
    centers = 20 * rng.standard_normal((8, 5))
    return centers[labels] + rng.standard_normal((300, 5)), labels


def entropy(values: list) -> float:
    shares = [values.count(v) / len(values) for v in set(values)]
    return -sum(p * math.log(p) for p in shares)


def test_nmi_matches_its_formula():
    rng = np.random.default_rng(0)
    labels, clusters = rng.integers(0, 4, 60), rng.integers(0, 6, 60)
    a, b = labels.tolist(), clusters.tolist()
    joint = entropy(list(zip(a, b, strict=True)))
    information = entropy(a) + entropy(b) - joint
    expected = 2 * information / (entropy(a) + entropy(b))
    assert nmi(labels, clusters) == pytest.approx(expected, rel=1e-12)


def test_f1_matches_a_loop_over_all_pairs():
    rng = np.random.default_rng(2)
    labels, clusters = rng.integers(0, 5, 40), rng.integers(0, 9, 40)
    hits = classes = predicted = 0
    for i, j in itertools.combinations(range(40), 2):
        same, together = labels[i] == labels[j], clusters[i] == clusters[j]
        hits += same and together
        classes += same
        predicted += together
    precision, recall = hits / predicted, hits / classes
    expected = 2 * precision * recall / (precision + recall)
    assert f1(labels, clusters) == pytest.approx(expected, rel=1e-12)


def test_f1_tells_ids_beyond_float32_apart():
    labels = np.array([2**60, 2**60 + 1, 2**60, 2**60 + 1])
    assert f1(labels, np.array([0, 1, 0, 1])) == 1.0
    assert f1(labels, np.array([0, 0, 1, 1])) == 0.0


def test_kmeans_finds_bunches_that_are_far_apart():
    points, labels = bunches()
    best = max(nmi(labels, kmeans(points, 8, seed=s)) for s in range(5))
    assert best == pytest.approx(1.0)


def test_kmeans_reaches_a_fixed_point_over_all_points():
    # With so many iterations, centroids are the means of all their points,
    # and every point is with the nearest: a subsample would not get there.
    points, _ = bunches()
    points = np.tile(points, (4, 1)) + 1e-3 * np.arange(1200)[:, None]
    clusters = kmeans(points, 3, iterations=200)
    assert clusters.dtype == np.int64 and clusters.shape == (1200,)
    centroids = np.stack([points[clusters == c].mean(0) for c in range(3)])
    distances = np.square(points[:, None] - centroids).sum(-1)
    np.testing.assert_array_equal(distances.argmin(1), clusters)


def test_kmeans_is_seeded():
    points = np.random.default_rng(3).standard_normal((200, 4))
    first = kmeans(points, 20, seed=5)
    np.testing.assert_array_equal(first, kmeans(points, 20, seed=5))
    assert (first != kmeans(points, 20, seed=6)).any()


@pytest.mark.parametrize("clusters", [0, 11])
def test_number_of_clusters_is_checked(clusters):
    with pytest.raises(ValueError, match=f"Received: clusters={clusters}"):
        kmeans(np.ones((10, 2)), clusters)


def test_evaluate_averages_over_seeds():
    points, labels = bunches()
    metrics = ("nmi", "ami", "f1")
    results = evaluate_embeddings(points, labels, metrics=metrics, seeds=(3, 4))
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    clusters = [kmeans(unit, 8, seed=s) for s in (3, 4)]
    for name, function in zip(metrics, (nmi, ami, f1), strict=True):
        expected = [function(labels, c) for c in clusters]
        np.testing.assert_allclose(results.per_seed[name], expected)
        assert results[name] == pytest.approx(np.mean(expected))
    assert results.num_queries == 0 and not results.per_query


def test_clusters_are_found_in_queries_and_gallery_together():
    points, labels = bunches()
    split = evaluate_embeddings(
        points[:100],
        labels[:100],
        gallery=points[100:],
        gallery_labels=labels[100:],
        metrics="nmi",
        distance="euclidean",
    )
    whole = evaluate_embeddings(
        points, labels, metrics="nmi", distance="euclidean"
    )
    assert split["nmi"] == whole["nmi"]
    assert split.num_classes == 8
