"""Angular loss against a loop, with its hand-written gradient."""

import math

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.losses import AngularLoss
from tests.losses.oracle import (
    batch,
    check_slopes,
    unit,
)


def exponent(a, p, n, angle):
    tan2 = math.tan(math.radians(angle)) ** 2
    return 4 * tan2 * (a + p) @ n - 2 * (1 + tan2) * (a @ p)


def test_gradient_with_references_and_unequal_weights():
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
