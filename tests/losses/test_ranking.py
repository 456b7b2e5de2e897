"""Soft ranks: cases that the shared loops do not cover."""

import math

import pytest

from keras_dml.losses import PNPLoss, RecallAtKLoss
from tests.losses.oracle import (
    LABELS,
    check_against_loop,
    sets,
    unit,
)


def sigmoid(x, temperature):
    return 1 / (1 + math.exp(-x / temperature))


def released_recall(labels, x):
    """The authors' computation, with the query among the ranks."""
    s, terms = unit(x) @ unit(x).T, []
    for a, same, _ in sets(labels):
        if not same:
            continue
        recall = 0.0
        for k, temperature in ((1, 1.0), (2, 2.0), (4, 4.0)):
            hits = 0.0
            for i in same:
                other_rows = (j for j in range(len(labels)) if j != i)
                rank = 1 + sum(
                    sigmoid(s[a, j] - s[a, i], 0.1) for j in other_rows
                )
                hits += sigmoid(k - rank, temperature)
            recall += min(hits, k) / min(k, len(same)) / 3
        terms.append(1 - recall)
    return sum(terms) / len(terms)


def test_recall_at_k_matches_the_released_code():
    loss = RecallAtKLoss(
        (1, 2, 4),
        (1, 2, 4),
        temperature=0.1,
        attainable=True,
        include_self=True,
    )
    check_against_loop(loss, released_recall, LABELS["unbalanced"], rtol=5e-5)


PENALTIES = {
    "I_u": lambda n: (1 + n) * math.log(1 + n),
    "I_b": lambda n: (3 * n - math.log(1 + 3 * n)) / 9,
    "D_s": lambda n: math.log(1 + n),
    "D_q": lambda n: 1 - (1 + n) ** -2,
}


@pytest.mark.parametrize("variant", PENALTIES)
def test_pnp_variants_match_a_loop_with_the_anchor_as_a_positive(variant):
    def loop(labels, x):
        s, terms = unit(x) @ unit(x).T, []
        for a, same, other in sets(labels):
            each = [
                PENALTIES[variant](
                    sum(sigmoid(s[a, n] - s[a, i], 0.1) for n in other)
                )
                for i in (a, *same)
            ]
            if same:
                terms.append(sum(each) / len(each))
        return sum(terms) / len(terms)

    loss = PNPLoss(variant, 2.0, 3.0, temperature=0.1, include_self=True)
    check_against_loop(loss, loop, LABELS["unbalanced"], rtol=5e-5)
