"""Histogram loss against a loop with explicit triangular bins."""

import numpy as np
import pytest

from keras_dml.losses import HistogramLoss
from tests.losses.oracle import LABELS, check_against_loop, sets, unit


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("num_bins", [7, 100])
def test_equations_1_to_5(labels, num_bins):
    width = 2 / num_bins

    def density(similarities):
        return [
            sum(
                max(0.0, 1 - abs(s + 1 - k * width) / width)
                for s in similarities
            )
            / len(similarities)
            for k in range(num_bins + 1)
        ]

    def loop(labels, x):
        x = unit(x)
        positives = [x[a] @ x[p] for a, same, _ in sets(labels) for p in same]
        negatives = [x[a] @ x[n] for a, _, rest in sets(labels) for n in rest]
        positive, negative = density(positives), density(negatives)
        return sum(
            negative[r] * sum(positive[: r + 1]) for r in range(num_bins + 1)
        )

    check_against_loop(HistogramLoss(num_bins), loop, labels, rtol=1e-4)


def test_separated_similarities_cost_nothing():
    x = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], "float32")
    loss = HistogramLoss()
    assert float(loss(np.array([0, 0, 1, 1]), x)) == pytest.approx(0, abs=1e-6)
    # Positives orthogonal, negatives equal or orthogonal: every negative
    # pair (s = 1 or 0) is at least as similar as every positive (s = 0).
    assert float(loss(np.array([0, 1, 0, 1]), x)) == pytest.approx(1, abs=1e-6)
