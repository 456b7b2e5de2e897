"""The Poincaré ball, against Möbius addition."""

import math

import numpy as np
import pytest

from keras_dml.losses import HyperbolicContrastiveLoss, poincare_distance
from tests.losses.oracle import (
    LABELS,
    batch,
    check_against_loop,
    log_sum,
    sets,
    softplus,
)


def mobius(u, v, c):
    """−u ⊕ v in the Poincaré ball of curvature −c."""
    uv, uu, vv = -u @ v, u @ u, v @ v
    total = -(1 + 2 * c * uv + c * vv) * u + (1 - c * uu) * v
    return total / (1 + 2 * c * uv + c**2 * uu * vv)


def hyperbolic(labels, x, w, mining, c=0.3, clip=0.7):
    root = math.sqrt(c)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    v = x * np.minimum(1, clip / norm)
    norm = np.minimum(norm, clip)
    ball = np.tanh(root * norm) * v / (root * norm)

    def logit(a, b):
        gap = np.linalg.norm(mobius(ball[a], ball[b], c))
        return -2 / root * math.atanh(root * gap) / 0.2

    terms = []
    for a, same, other in sets(labels):
        rest = log_sum([logit(a, n) for n in other], w[1][a, other])
        terms += [w[0][a, p] * softplus(rest - logit(a, p)) for p in same]
    return sum(terms) / len(terms)


LOOPS = {
    "hyperbolic": (
        {"curvature": 0.3, "clip": 0.7, "normalize": True},
        hyperbolic,
    )
}


def distances(x, c, clip):
    root = math.sqrt(c)
    ball = []
    for row in x:
        norm = math.sqrt(row @ row)
        length = min(norm, clip)
        ball.append(math.tanh(root * length) / (root * norm) * row)
    return np.array(
        [
            [
                2 / root * math.atanh(root * np.linalg.norm(mobius(u, v, c)))
                for v in ball
            ]
            for u in ball
        ]
    )


@pytest.mark.parametrize("clip", [None, 1.5])
def test_loss_matches_a_loop_for_all_lengths(clip):
    def loop(labels, x):
        logits = -distances(x, 0.3, clip or math.inf) / 0.5
        terms = []
        for a, same, other in sets(labels):
            rest = log_sum(logits[a, other], np.ones(len(other)))
            terms += [softplus(rest - logits[a, p]) for p in same]
        return sum(terms) / len(terms)

    loss = HyperbolicContrastiveLoss(0.3, clip, temperature=0.5)
    check_against_loop(loss, loop, LABELS["unbalanced"], rtol=5e-5)


def test_distances_of_close_and_far_points_are_exact():
    x = batch([0] * 4).astype("float32")
    near = x + np.float32(0.02)
    actual = np.diag(poincare_distance(x, near, 0.1, None))
    expected = np.diag(distances(np.concatenate([x, near]), 0.1, 99)[:4, 4:])
    np.testing.assert_allclose(actual, expected, rtol=1e-3)
    # As the curvature goes, twice the Euclidean distance is left.
    flat = np.array(poincare_distance(x, None, 1e-6, None))
    euclidean = np.linalg.norm(x[:, None] - x, axis=2)
    np.testing.assert_allclose(flat, 2 * euclidean, atol=1e-3)
    # Far beyond the rim everything is finite.
    assert np.isfinite(poincare_distance(1e4 * x, None, 1.0, None)).all()
