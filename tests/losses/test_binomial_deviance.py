"""Binomial deviance against a loop over pairs."""

import math

import pytest

from keras_dml.losses import BinomialDevianceLoss
from tests.losses.oracle import LABELS, check_against_loop, sets, unit


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("scales", [(1.0, 25.0), (25.0, 1.0)])
def test_mean_of_positives_plus_mean_of_negatives(labels, scales):
    def loop(labels, x):
        x = unit(x)
        positives, negatives = [], []
        for a, same, other in sets(labels):
            for p in same:
                exponent = -2.0 * scales[0] * (x[a] @ x[p] - 0.5)
                positives.append(math.log1p(math.exp(exponent)))
            for n in other:
                exponent = 2.0 * scales[1] * (x[a] @ x[n] - 0.5)
                negatives.append(math.log1p(math.exp(exponent)))
        return sum(positives) / len(positives) + sum(negatives) / len(negatives)

    loss = BinomialDevianceLoss(
        positive_scale=scales[0], negative_scale=scales[1]
    )
    check_against_loop(loss, loop, labels)
