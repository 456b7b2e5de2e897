"""Supervised contrastive loss of label sets, against loops."""

import math

import numpy as np
import pytest

from keras_dml.losses import MultiSupConLoss, SupConLoss
from tests.losses.oracle import (
    batch,
    check_slopes,
    unit,
    value_and_gradient,
)

SETS = [{0, 1}, {1}, {0, 1, 2}, {3}, {2, 3}, set(), {1}, {4}]
TABLE = np.array([[c in labels for c in range(5)] for labels in SETS])
X = batch([0] * len(SETS))


def loop(x, weighted=True, threshold=0.3):
    s, terms = unit(x) @ unit(x).T / 0.1, []
    for a, anchor_set in enumerate(SETS):
        other_rows = [j for j in range(len(SETS)) if j != a]
        total = math.log(sum(math.exp(s[a, j]) for j in other_rows))
        lost = []
        for j in other_rows:
            either = len(anchor_set | SETS[j])
            overlap = len(anchor_set & SETS[j]) / either if either else 0.0
            if overlap >= threshold:
                weight = overlap if weighted else 1.0
                lost.append(weight * (total - s[a, j]))
        if lost:
            terms.append(sum(lost) / len(lost))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("weighted", [True, False])
def test_value_and_gradient_match_a_loop_over_label_sets(weighted):
    loss = MultiSupConLoss(weighted=weighted)
    values, gradient = value_and_gradient(loss, TABLE, X.astype("float32"))
    assert values.mean() == pytest.approx(loop(X, weighted), rel=2e-5)
    check_slopes(gradient, lambda x: loop(x, weighted), X)
    assert (
        values[[5, 7]] == 0
    ).all()  # one without labels, one whose labels nobody shares


def test_references_may_have_label_sets():
    x, loss = X.astype("float32"), MultiSupConLoss()
    first, second = slice(0, 4), slice(4, 8)
    whole = SupConLoss().per_example(
        (TABLE.astype(int) @ TABLE.T > 0)[first, second].astype("int32"),
        x[first],
        ref_embeddings=x[second],
    )
    same = MultiSupConLoss(threshold=1e-6, weighted=False)
    values = same.per_example(TABLE[first], x[first], TABLE[second], x[second])
    np.testing.assert_allclose(values, whole, rtol=1e-5, atol=1e-6)
    graded = loss.per_example(TABLE[first], x[first], TABLE[second], x[second])
    assert not np.allclose(graded, whole)


def test_pair_weights_multiply_the_overlap():
    x, ones = X.astype("float32"), np.ones((8, 8), "float32")
    loss = MultiSupConLoss()
    values = loss.per_example(TABLE, x, pair_weights=(2 * ones, ones))
    expected = 2 * np.array(loss.per_example(TABLE, x))
    np.testing.assert_allclose(values, expected, rtol=1e-6)
