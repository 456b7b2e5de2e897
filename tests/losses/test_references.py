"""Losses with references, whose terms differ from those in a batch."""

import math

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.losses import AngularLoss, LiftedStructureLoss, NPairLoss
from tests.losses.oracle import batch, check_slopes, unit, value_and_gradient


def exponent(a, p, n, angle):
    tan2 = math.tan(math.radians(angle)) ** 2
    return 4 * tan2 * (a + p) @ n - 2 * (1 + tan2) * (a @ p)


def test_angular_gradient_reaches_references():
    labels, ref_labels = [0, 1, 2, 1], [1, 1, 0, 3, 0]
    x, refs = batch(labels), batch(ref_labels)
    weights = np.array([0.3, 2.0, 5.0, -1.0])

    def loop(x, refs):
        x, refs, total = unit(x), unit(refs), 0.0
        for a, label in enumerate(labels):
            same = [r for r in range(5) if ref_labels[r] == label]
            other = [r for r in range(5) if ref_labels[r] != label]
            for p in same:
                total += weights[a] * math.log1p(
                    sum(
                        math.exp(exponent(x[a], refs[p], refs[n], 45.0))
                        for n in other
                    )
                )
        return total

    tensors = [tf.constant(v, "float32") for v in (x, refs)]
    loss = AngularLoss(reduction="sum_over_pairs")
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        values = loss.per_example(
            np.array(labels), tensors[0], np.array(ref_labels), tensors[1]
        )
        total = tf.reduce_sum(values * weights.astype("float32"))
    assert float(total) == pytest.approx(loop(x, refs), rel=1e-5)
    by_x, by_refs = tape.gradient(total, tensors)
    check_slopes(by_x.numpy(), lambda z: loop(z, refs), x)
    check_slopes(by_refs.numpy(), lambda z: loop(x, z), refs)
    assert values[2] == 0


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


def test_n_pair_matches_the_batch_of_the_paper():
    # N anchors, and as references their N positives: cross entropy of
    # the N×N inner products with the diagonal as target.
    count = 5
    x, refs = batch([0] * count), batch([0] * count, seed=1)
    logits = x @ refs.T
    expected = [
        math.log(sum(math.exp(v) for v in row)) - row[i]
        for i, row in enumerate(logits)
    ]
    values, _ = value_and_gradient(
        NPairLoss(),
        np.arange(count),
        x.astype("float32"),
        ref_labels=np.arange(count),
        ref_embeddings=refs.astype("float32"),
    )
    np.testing.assert_allclose(values, expected, rtol=1e-5)
