"""Circle loss against a loop whose α is held fixed."""

import math

import numpy as np
import pytest

from keras_dml.losses import CircleLoss
from tests.losses.oracle import (
    LABELS,
    batch,
    numeric_gradient,
    sets,
    unit,
    value_and_gradient,
)


def circle(labels, x, fixed, margin, gamma):
    x, fixed = unit(x), unit(fixed)
    terms = []
    for a, same, other in sets(labels):
        if not same or not other:
            continue
        pull = push = 0.0
        for p in same:
            pace = max(0.0, 1 + margin - fixed[a] @ fixed[p])
            pull += math.exp(-gamma * pace * (x[a] @ x[p] - 1 + margin))
        for n in other:
            pace = max(0.0, fixed[a] @ fixed[n] + margin)
            push += math.exp(gamma * pace * (x[a] @ x[n] - margin))
        terms.append(math.log1p(pull * push))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(("margin", "gamma"), [(0.4, 80.0), (0.25, 10.0)])
def test_value_and_gradient(labels, margin, gamma):
    x = batch(labels)
    values, gradient = value_and_gradient(
        CircleLoss(margin, gamma), np.array(labels), x.astype("float32")
    )
    assert values.mean() == pytest.approx(
        circle(labels, x, x, margin, gamma), rel=2e-5
    )
    slope = numeric_gradient(lambda z: circle(labels, z, x, margin, gamma), x)
    np.testing.assert_allclose(gradient, slope, atol=3e-5 * np.abs(slope).max())
