"""Lifted structure loss against loops."""

import math

import numpy as np

from keras_dml.losses import LiftedStructureLoss
from tests.losses.oracle import (
    batch,
    unit,
    value_and_gradient,
)


def distance(u, v):
    return math.sqrt(sum((u - v) ** 2))


def test_negatives_of_a_reference_are_the_anchors_unlike_it():
    labels, ref_labels = [0, 1, 2], [1, 0]
    x, refs = unit(batch(labels)), unit(batch(ref_labels))
    expected = [0.0, 0.0, 0.0]
    for a, r in ((0, 1), (1, 0)):
        total = math.exp(1.0 - distance(x[a], refs[1 - r]))
        for other in range(3):
            if labels[other] != ref_labels[r]:
                total += math.exp(1.0 - distance(x[other], refs[r]))
        violation = math.log(total) + distance(x[a], refs[r])
        # Two positive pairs in a batch of three.
        expected[a] = max(0.0, violation) ** 2 / 2 * 3 / 2
    values, _ = value_and_gradient(
        LiftedStructureLoss(),
        np.array(labels),
        x.astype("float32"),
        ref_labels=np.array(ref_labels),
        ref_embeddings=refs.astype("float32"),
    )
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_equal_ends_of_a_positive_pair_share_the_gradient():
    # Both ends have the same distances to their negatives, by symmetry:
    # what pushes the negatives away must be symmetric too.
    x = np.array([[0.6, 0.8], [0.6, -0.8], [-1, 0.0]], "float32")
    _, gradient = value_and_gradient(
        LiftedStructureLoss(normalize=False), np.array([0, 0, 1]), x
    )
    assert np.abs(gradient).max() > 0.1
    np.testing.assert_allclose(gradient[0], gradient[1] * [1, -1], atol=1e-6)
    np.testing.assert_allclose(gradient[2, 1], 0, atol=1e-6)
