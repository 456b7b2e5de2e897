"""Reductions and masked sums."""

import math

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.losses.reductions import (
    REDUCTIONS,
    masked_logsumexp,
    reduce_terms,
    sum_terms,
)

TERMS = np.array([[1.0, 0.0, 3.0], [9.0, 0.5, 9.0]], "float32")
MASK = np.array([[True, True, True], [False, True, False]])


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        ("mean", 4.5 / 4),
        ("mean_nonzero", 4.5 / 3),
        ("sum_over_pairs", 4.5 / 2),
    ],
)
def test_mean_of_the_values_is_the_named_reduction(reduction, expected):
    values = reduce_terms(sum_terms(TERMS, MASK), reduction)
    assert values.shape == (2,)
    assert float(np.mean(values)) == pytest.approx(expected)
    assert float(values[0] / values[1]) == pytest.approx(4.0 / 0.5)


def test_weights_count_a_term_several_times():
    weights = np.array([[2, 5, 0], [0, 0, 3]], "float32")
    terms = sum_terms(TERMS, weights)
    np.testing.assert_allclose(terms.total, [2.0, 27.0])
    np.testing.assert_allclose(terms.count, [7.0, 3.0])
    np.testing.assert_allclose(terms.nonzero, [2.0, 3.0])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reduction_of_no_terms_is_zero(reduction):
    values = reduce_terms(sum_terms(TERMS, np.zeros((2, 3))), reduction)
    np.testing.assert_array_equal(values, [0.0, 0.0])


def test_masked_nan_leaves_value_and_gradient_finite():
    terms = tf.constant([1.0, math.nan, math.inf])
    with tf.GradientTape() as tape:
        tape.watch(terms)
        values = reduce_terms(
            sum_terms(terms, np.array([True, False, False])), "mean"
        )
        total = tf.reduce_sum(values)
    np.testing.assert_allclose(values, [3.0, 0.0, 0.0])
    np.testing.assert_allclose(tape.gradient(total, terms), [3.0, 0.0, 0.0])


@pytest.mark.parametrize("add_one", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shift", [0.0, 300.0, -300.0])
def test_masked_logsumexp_matches_a_loop(add_one, axis, shift):
    x = np.random.default_rng(0).normal(size=(4, 5)) + shift
    mask = np.random.default_rng(1).random((4, 5)) < 0.6
    one = [0.0] if add_one else []
    rows = x if axis == 1 else x.T
    masks = mask if axis == 1 else mask.T
    expected = [
        np.logaddexp.reduce([*row[keep], *one])
        for row, keep in zip(rows, masks, strict=True)
    ]
    tensor = tf.constant(x, "float32")
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        actual = masked_logsumexp(tensor, mask, axis, add_one)
    np.testing.assert_allclose(
        np.ravel(actual), expected, rtol=1e-5, atol=1e-37
    )
    gradient = tape.gradient(actual, tensor)
    slope = np.where(mask, np.exp(x - np.reshape(expected, actual.shape)), 0)
    np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-37)


def test_masked_logsumexp_of_nothing_is_finite():
    x = tf.constant([[500.0, -500.0]])
    for add_one, expected in ((True, 0.0), (False, -1e30)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = masked_logsumexp(x, x > 1e3, add_one=add_one)
        assert float(value[0, 0]) == np.float32(expected)
        np.testing.assert_array_equal(tape.gradient(value, x), [[0.0, 0.0]])


def test_overflow_in_a_masked_entry_leaves_the_gradient_finite():
    x = tf.constant([[1.0, 1e30]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = masked_logsumexp(x, np.array([[True, False]]))
    np.testing.assert_allclose(tape.gradient(value, x), [[1.0, 0.0]])
