"""Regularizers of ensembles against loops."""

import math

import numpy as np
import pytest

from keras_dml.losses import regularizers
from tests.losses.oracle import batch, unit

PARTS = unit(np.random.default_rng(0).normal(size=(3, 4, 5)))
PARTS[0, 1] = PARTS[0, 0]  # two equal learners


def test_divergence_is_abe_eq_9_over_unordered_pairs():
    expected = [
        sum(
            max(0.0, 1.7 - sum((image[p] - image[q]) ** 2))
            for p in range(4)
            for q in range(p + 1, 4)
        )
        for image in PARTS
    ]
    actual = regularizers.divergence(PARTS.astype("float32"), margin=1.7)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    assert expected[0] >= 1.7  # the equal learners alone


def test_divergence_as_printed_has_ordered_pairs_and_no_mean():
    printed = sum(
        max(0.0, 1.7 - sum((image[p] - image[q]) ** 2))
        for image in PARTS
        for p in range(4)
        for q in range(4)
        if p != q
    )
    parts = PARTS.astype("float32")
    values = regularizers.divergence(parts, margin=1.7, reduction="sum")
    assert np.mean(values) == pytest.approx(printed, rel=1e-5)


@pytest.mark.parametrize(("reduction", "divisor"), [("mean", 6), ("sum", 3)])
@pytest.mark.parametrize("scale", [25.0, 1.0])
def test_diversity_is_attentive_grouping_eq_4(reduction, divisor, scale):
    expected = [
        sum(
            math.log1p(math.exp(2.0 * scale * (image[i] @ image[j] - 0.5)))
            for i in range(4)
            for j in range(i + 1, 4)
        )
        / divisor
        for image in PARTS
    ]
    actual = regularizers.diversity(
        PARTS.astype("float32"), scale=scale, reduction=reduction
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_one_part_is_diverse():
    one = PARTS[:, :1].astype("float32")
    np.testing.assert_array_equal(regularizers.divergence(one), np.zeros(3))
    np.testing.assert_array_equal(regularizers.diversity(one), np.zeros(3))


def test_self_reinforcement_is_dcml_eq_7_with_absolute_weights():
    weights = np.array(
        [[[0.5, -0.3, 0.2], [-0.9, 0.05, 0.05]], [[1, 0, 0], [0, -1, 0]]],
        "float32",
    )
    np.testing.assert_allclose(
        regularizers.self_reinforcement(weights),
        [-math.log(0.5) - math.log(0.9), 0.0],
        rtol=1e-6,
    )


def test_correlation_is_diva_eq_7():
    a, b = unit(batch([0] * 3)), unit(batch([0] * 3, seed=1))
    expected = [sum((u * v) ** 2) for u, v in zip(a, b, strict=True)]
    a, b = a.astype("float32"), b.astype("float32")
    total = regularizers.correlation(a, b, "sum")
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    mean = regularizers.correlation(a, b)
    np.testing.assert_allclose(mean, np.array(expected) / 5, rtol=1e-5)
