"""VICReg and Barlow Twins on two views, against the papers' formulas."""

import numpy as np
import pytest

from keras_dml.losses import BarlowTwinsLoss, VICRegLoss
from tests.losses.oracle import (
    batch,
    check_slopes,
    value_and_gradient,
)

N, D = 7, 4
FIRST, SECOND = batch([0] * N, D), batch([0] * N, D, seed=1) + 0.3
IMAGES = np.arange(N)


def vicreg(z, other):
    def variance(z):
        return np.maximum(1 - np.sqrt(z.var(axis=0, ddof=1) + 1e-4), 0).mean()

    def covariance(z):
        c = np.cov(z.T)
        return ((c**2).sum() - (np.diag(c) ** 2).sum()) / D

    apart = ((z - other) ** 2).mean(axis=1).mean()
    return (
        25 * apart
        + 25 * (variance(z) + variance(other))
        + covariance(z)
        + covariance(other)
    )


def barlow_twins(z, other):
    z, other = ((v - v.mean(0)) / np.sqrt(v.var(0) + 1e-5) for v in (z, other))
    total = 0.0
    for i in range(D):
        for j in range(D):
            c = (z[:, i] * other[:, j]).mean()
            total += (1 - c) ** 2 if i == j else 0.0051 * c**2
    return total


@pytest.mark.parametrize(
    ("loss", "formula"),
    [(VICRegLoss(), vicreg), (BarlowTwinsLoss(), barlow_twins)],
)
def test_value_and_gradient_of_two_views_match_the_formula(loss, formula):
    first, second = FIRST.astype("float32"), SECOND.astype("float32")
    views = {"ref_labels": IMAGES, "ref_embeddings": second}
    values, gradient = value_and_gradient(loss, IMAGES, first, **views)
    assert values.mean() == pytest.approx(formula(FIRST, SECOND), rel=1e-5)
    check_slopes(gradient, lambda z: formula(z, SECOND), FIRST)
    # Both views in one batch are each other's: Z = Z' = all of them.
    both = np.concatenate([first, second])
    value = float(loss(np.tile(IMAGES, 2), both))
    everything = (
        np.concatenate([FIRST, SECOND]),
        np.concatenate([SECOND, FIRST]),
    )
    assert value == pytest.approx(formula(*everything), rel=1e-5)


def test_target_none_can_be_met_by_unit_embeddings():
    x = np.concatenate([np.eye(D), -np.eye(D)]).repeat(2, axis=0)
    labels = np.repeat(np.arange(2 * D), 2)
    x = x.astype("float32")
    assert float(VICRegLoss(target=None, epsilon=1e-6)(labels, x)) < 1e-3
    assert float(VICRegLoss()(labels, x)) > 1
