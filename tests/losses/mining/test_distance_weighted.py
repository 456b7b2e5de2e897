"""Distance-weighted sampling against the analytic distribution."""

import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from keras_dml.losses import MarginLoss
from keras_dml.losses.mining import DistanceWeighted
from keras_dml.losses.pairs import Pairs, compare
from tests.losses.oracle import batch, unit


def arc(distances):
    """Points on the unit circle at given distances from (1, 0)."""
    angles = [2 * math.asin(d / 2) for d in distances]
    return np.array([[math.cos(a), math.sin(a)] for a in angles])


def analytic(distances, dim, cutoff=0.5, max_distance=1.4):
    """Probabilities by the definition, in float64 and without logs."""
    weights = []
    for d in distances:
        clamped = max(d, cutoff)
        density = clamped ** (dim - 2) * (1 - clamped**2 / 4) ** ((dim - 3) / 2)
        weights.append(0.0 if d > max_distance else 1 / density)
    return np.array(weights) / sum(weights)


DISTANCES = [0.2, 0.45, 0.7, 0.9, 1.05, 1.2, 1.3, 1.39, 1.41, 1.9]


def pairs_at(distances, dim, anchors=1, metric="euclidean"):
    """Equal anchors, one positive, and negatives at given distances."""
    x = np.repeat([[1.0, 0.0]], anchors, axis=0)
    refs = np.concatenate([[[1.0, 0.0]], arc(distances)])
    pairs = compare(
        np.zeros(anchors, "int32"),
        x.astype("float32"),
        np.array([0] + [1] * len(distances)),
        refs.astype("float32"),
        metric,
    )
    return pairs._replace(embedding_dim=dim)


@pytest.mark.parametrize("dim", [3, 8, 128])
@pytest.mark.parametrize("metric", ["euclidean", "squared", "cosine", "dot"])
def test_probabilities_match_the_inverse_density(dim, metric):
    pairs = pairs_at(DISTANCES, dim, metric=metric)
    actual = np.array(DistanceWeighted().probabilities(pairs))[0]
    assert actual[0] == 0
    expected = analytic(DISTANCES, dim)
    np.testing.assert_allclose(actual[1:], expected, rtol=2e-3, atol=1e-9)
    assert actual.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dim", [4, 16])
def test_draws_follow_the_probabilities(dim):
    draws = 40_000
    pairs = pairs_at(DISTANCES, dim, anchors=draws)
    positive, negative = DistanceWeighted().pair_weights(pairs, seed=1)
    np.testing.assert_array_equal(np.sum(negative, axis=1), np.ones(draws))
    np.testing.assert_array_equal(positive[:, 0], np.ones(draws))
    counts = np.sum(negative, axis=0)[1:]
    expected = draws * analytic(DISTANCES, dim)
    assert (counts[expected == 0] == 0).all()
    likely = expected > 5
    assert likely.sum() >= 3
    counts = np.append(counts[likely], counts[~likely].sum())
    expected = np.append(expected[likely], expected[~likely].sum() + 1e-9)
    result = scipy.stats.chisquare(counts, expected, sum_check=False)
    assert result.pvalue > 1e-3


def test_all_positives_draw_by_the_probabilities():
    # More positives than random numbers are drawn for an anchor.
    count, anchors = 20, 500
    x = np.repeat([[1.0, 0.0]], anchors, axis=0)
    refs = np.concatenate([np.repeat(x[:1], count, axis=0), arc(DISTANCES)])
    ref_labels = np.array([0] * count + [1] * len(DISTANCES))
    pairs = compare(
        np.zeros(anchors, "int32"),
        x.astype("float32"),
        ref_labels,
        refs.astype("float32"),
    )._replace(embedding_dim=4)
    _, negative = DistanceWeighted().pair_weights(pairs, seed=5)
    drawn = np.sum(negative, axis=0)[count:]
    expected = anchors * count * analytic(DISTANCES, 4)
    assert drawn.sum() == anchors * count
    np.testing.assert_allclose(drawn, expected, rtol=0.15, atol=1)


def test_far_negatives_alone_are_drawn_uniformly():
    draws = 20_000
    distances = [1.45, 1.6, 1.9, 2.0]
    pairs = pairs_at(distances, 32, anchors=draws)
    _, negative = DistanceWeighted().pair_weights(pairs, seed=2)
    counts = np.sum(negative, axis=0)
    assert counts[0] == 0  # never the positive
    assert scipy.stats.chisquare(counts[1:]).pvalue > 1e-3


@pytest.mark.parametrize(
    "jit", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_one_seed_gives_one_sequence(jit):
    labels = np.repeat(np.arange(8), 4)
    x = batch([0] * 32, dim=16).astype("float32")

    def run(loss):
        step = loss.per_example
        if jit:
            step = tf.function(step, jit_compile=True, autograph=False)
        return [step(labels, x).numpy() for _ in range(3)]

    first, again, other = (run(MarginLoss(seed=seed)) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[1])
    copy = MarginLoss.from_config(MarginLoss(seed=7).get_config())
    np.testing.assert_array_equal(run(copy), first)


def test_no_gradient_passes_the_draw():
    x = tf.constant(unit(batch([0, 0, 1, 1])), "float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        pairs = compare(np.array([0, 0, 1, 1]), x)
        weights = DistanceWeighted().pair_weights(pairs, seed=0)
    assert tape.gradient(weights, x) is None


def test_anchors_without_positives_or_negatives_draw_nothing():
    pairs: Pairs = compare(
        np.array([0, 0, 1]), batch([0] * 3).astype("float32")
    )
    positive, negative = DistanceWeighted().pair_weights(pairs, seed=0)
    np.testing.assert_array_equal(np.sum(positive, axis=1), [1, 1, 0])
    np.testing.assert_array_equal(np.sum(negative, axis=1), [1, 1, 0])
