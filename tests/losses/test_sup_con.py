"""Supervised contrastive loss against a loop."""

import math

import pytest

from keras_dml.losses import SupConLoss
from tests.losses.oracle import (
    DEGENERATE,
    LABELS,
    check_against_loop,
    sets,
    unit,
)

# A batch of one class still has positives, and a loss.
BATCHES = {**LABELS, "one class": DEGENERATE["one class"]}


@pytest.mark.parametrize("labels", BATCHES.values(), ids=BATCHES)
def test_equation_2(labels):
    def loop(labels, x):
        x, terms = unit(x), []
        for a, same, other in sets(labels):
            total = sum(math.exp(x[a] @ x[k] / 0.2) for k in same + other)
            if same:
                logs = [x[a] @ x[p] / 0.2 - math.log(total) for p in same]
                terms.append(-sum(logs) / len(same))
        return sum(terms) / len(terms)

    check_against_loop(SupConLoss(0.2), loop, labels)
