"""Multi-similarity loss against a loop."""

import math

import pytest

from keras_dml.losses import MultiSimilarityLoss
from tests.losses.oracle import LABELS, check_against_loop, sets, unit


def multi_similarity(labels, x, alpha, beta, threshold, epsilon):
    x = unit(x)
    total = 0.0
    for a, same, other in sets(labels):
        positives = [x[a] @ x[p] for p in same]
        negatives = [x[a] @ x[n] for n in other]
        if epsilon is not None:
            lowest = min(positives, default=math.inf)
            highest = max(negatives, default=-math.inf)
            negatives = [s for s in negatives if s > lowest - epsilon]
            positives = [s for s in positives if s < highest + epsilon]
        pull = sum(math.exp(-alpha * (s - threshold)) for s in positives)
        push = sum(math.exp(beta * (s - threshold)) for s in negatives)
        total += math.log(1 + pull) / alpha + math.log(1 + push) / beta
    return total / len(labels)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("epsilon", [None, 0.1, -0.3])
def test_equation_15_with_and_without_mining(labels, epsilon):
    def loop(labels, x):
        return multi_similarity(labels, x, 2.0, 50.0, 0.5, epsilon)

    mining = (
        "all"
        if epsilon is None
        else {"name": "multi_similarity", "epsilon": epsilon}
    )
    check_against_loop(MultiSimilarityLoss(mining=mining), loop, labels)


def test_other_scales():
    def loop(labels, x):
        return multi_similarity(labels, x, 3.0, 20.0, 0.3, None)

    loss = MultiSimilarityLoss(3.0, 20.0, threshold=0.3, mining="all")
    check_against_loop(loss, loop, LABELS["balanced"])
