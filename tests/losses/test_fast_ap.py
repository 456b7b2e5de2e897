"""FastAP against a loop with explicit triangular bins."""

import numpy as np
import pytest

from keras_dml.losses import FastAPLoss
from tests.losses.oracle import LABELS, check_against_loop, sets, unit


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("num_bins", [4, 10])
def test_equation_8(labels, num_bins):
    width = 4 / num_bins
    nodes = [k * width for k in range(num_bins + 1)]

    def counts(distances):
        return [
            sum(max(0.0, 1 - abs(d - node) / width) for d in distances)
            for node in nodes
        ]

    def loop(labels, x):
        x, terms = unit(x), []
        for a, same, other in sets(labels):
            if not same:
                continue
            positive = counts([sum((x[a] - x[p]) ** 2) for p in same])
            negative = counts([sum((x[a] - x[n]) ** 2) for n in other])
            precision = 0.0
            for k in range(num_bins + 1):
                up_to = sum(positive[: k + 1])
                everything = up_to + sum(negative[: k + 1])
                if positive[k]:
                    precision += positive[k] * up_to / everything
            terms.append(1 - precision / len(same))
        return sum(terms) / len(terms)

    check_against_loop(FastAPLoss(num_bins), loop, labels)


def test_perfect_ranking_costs_nothing():
    x = np.array([[1, 0], [1, 0], [-1, 0], [-1, 0]], "float32")
    assert float(FastAPLoss()(np.array([0, 0, 1, 1]), x)) == 0.0
