"""NT-Xent and N-pair against loops."""

import math

import numpy as np
import pytest

from keras_dml.losses import NPairLoss, NTXentLoss
from tests.losses.oracle import (
    LABELS,
    batch,
    check_against_loop,
    sets,
    unit,
    value_and_gradient,
)


def mean_over_positive_pairs(labels, x, temperature):
    terms = []
    for a, same, other in sets(labels):
        rest = sum(math.exp(x[a] @ x[n] / temperature) for n in other)
        for p in same:
            own = math.exp(x[a] @ x[p] / temperature)
            terms.append(-math.log(own / (own + rest)))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_nt_xent(labels):
    def loop(labels, x):
        return mean_over_positive_pairs(labels, unit(x), 0.3)

    check_against_loop(NTXentLoss(0.3), loop, labels)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_n_pair_uses_raw_inner_products(labels):
    def loop(labels, x):
        return mean_over_positive_pairs(labels, x, 1.0)

    check_against_loop(NPairLoss(), loop, labels)


def test_n_pair_batch_of_the_paper():
    # N anchors, and as references their N positives: cross entropy of
    # the N×N inner products with the diagonal as target.
    count = 5
    x, refs = batch([0] * count), batch([0] * count, seed=1)
    logits = x @ refs.T
    expected = [
        math.log(sum(math.exp(v) for v in row)) - row[i]
        for i, row in enumerate(logits)
    ]
    values, _ = value_and_gradient(
        NPairLoss(),
        np.arange(count),
        x.astype("float32"),
        ref_labels=np.arange(count),
        ref_embeddings=refs.astype("float32"),
    )
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_simclr_views_of_known_similarity():
    # Two images, two orthogonal unit vectors, both views equal: s = 1
    # with the positive, 0 with two negatives:
    # −ln(e / (e + 2)) = ln(1 + 2/e) = 0.5514.
    x = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], "float32")
    loss = NTXentLoss(temperature=1.0)
    assert float(loss(np.array([0, 1, 0, 1]), x)) == pytest.approx(
        0.5514447, abs=1e-6
    )
