"""Unit rows, and their gradient by the closed form, at every length."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.utils.gradients import SHORT, l2_normalize
from tests.conftest import graph_and_xla

LENGTHS = (3.0, SHORT, SHORT / 10, 1e-8, 1e-20, 0.0, 1e20)


def rows(dtype: str = "float32") -> np.ndarray:
    directions = np.random.default_rng(0).normal(size=(len(LENGTHS), 5))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return (np.array(LENGTHS)[:, None] * directions).astype(dtype)


def test_rows_are_unit_or_zero() -> None:
    found = np.array(l2_normalize(rows()))
    # What has a square in float32 has a direction.
    lengths = np.linalg.norm(found, axis=1)
    np.testing.assert_allclose(lengths, [1, 1, 1, 1, 0, 0, 0], atol=1e-6)
    ordinary = rows()[:3]
    expected = keras.ops.normalize(ordinary, axis=-1, epsilon=1e-12)
    np.testing.assert_array_equal(found[:3], expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_overflows_only_where_the_row_does(dtype) -> None:
    x = tf.cast([[300.0, 400.0], [3e-4, -4e-4], [0.0, 0.0]], dtype)
    unit = l2_normalize(x)
    assert unit.dtype == dtype
    expected = [[0.6, 0.8], [0.6, -0.8], [0.0, 0.0]]
    np.testing.assert_allclose(tf.cast(unit, "float32"), expected, atol=5e-3)


@graph_and_xla
def test_gradient_is_bounded_at_short_rows(jit) -> None:
    x, upstream = rows(), np.random.default_rng(1).normal(size=(7, 5))

    @tf.function(jit_compile=jit)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(l2_normalize(x) * upstream.astype("float32"))
        return tape.gradient(total, x)

    unit = np.array(l2_normalize(x), "float64")
    tangent = upstream - unit * (unit * upstream).sum(1, keepdims=True)
    factors = [1 / 3, 1 / SHORT, 1 / SHORT, 1 / SHORT, 1, 1, 0]
    np.testing.assert_allclose(
        gradient(tf.constant(x)),
        np.array(factors)[:, None] * tangent,
        rtol=1e-4,
        atol=1e-4,
    )
