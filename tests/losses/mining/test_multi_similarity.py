"""Multi-similarity mining against explicit comparison."""

import numpy as np
import pytest

from keras_dml.losses.mining import MultiSimilarity
from keras_dml.losses.pairs import compare
from tests.losses.oracle import LABELS, batch, sets, unit


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("epsilon", [0.1, -0.4])
def test_kept_pairs(labels, epsilon):
    x = unit(batch(labels, seed=2))
    expected = np.zeros((2, len(labels), len(labels)))
    for a, same, other in sets(labels):
        if same and other:
            lowest = min(x[a] @ x[p] for p in same)
            highest = max(x[a] @ x[n] for n in other)
            for p in same:
                expected[0, a, p] = x[a] @ x[p] < highest + epsilon
            for n in other:
                expected[1, a, n] = x[a] @ x[n] > lowest - epsilon
    pairs = compare(np.array(labels), x.astype("float32"), distance="cosine")
    actual = MultiSimilarity(epsilon).pair_weights(pairs)
    np.testing.assert_array_equal(actual, expected)
    assert 0 < expected.sum() < np.sum(pairs.positive) + np.sum(pairs.negative)
