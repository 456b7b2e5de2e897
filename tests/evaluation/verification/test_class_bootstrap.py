"""The class bootstrap against samples written out."""

import numpy as np
import pytest

from keras_dml.evaluation.verification import pair_counts
from keras_dml.evaluation.verification.pair_counts import (
    STEP,
    ClassBootstrap,
    Factors,
)
from tests.evaluation.verification.all_pairs import embeddings


@pytest.mark.parametrize("most_units", [512, 5])
def test_bootstrap_counts_are_those_of_drawn_classes(
    most_units, monkeypatch
) -> None:
    """Samples written out image by image, class copies kept apart."""
    monkeypatch.setattr(pair_counts, "MOST_UNITS", most_units)
    monkeypatch.setattr(pair_counts, "_UNIT_ROWS", 3)
    monkeypatch.setattr(pair_counts, "_UNIT_PAIRS", 40)
    x, labels = embeddings(classes=9, images=4)
    classes = labels // 7
    factors = Factors.of(x, x, "cosine")
    bootstrap = ClassBootstrap(factors, classes, num_resamples=6, seed=1)
    thresholds = np.array([-1.0, 0.1, 0.5, 0.75])
    positions = np.round((thresholds + 1) / STEP).astype(int)
    drawn = bootstrap.drawn(positions)
    scores = x.astype(float) @ x.astype(float).T
    # What was drawn: the units of the classes, and how often each.
    unit_of_row = np.empty(len(x), int)
    unit_of_class = np.random.default_rng(1).permutation(9) % min(9, most_units)
    unit_of_row = unit_of_class[classes]
    first, second = np.tril_indices(len(x), -1)
    is_one = classes[first] == classes[second]
    cells = np.floor((scores[first, second] + 1) / STEP)
    for sample, times in enumerate(bootstrap._times):
        a, b = unit_of_row[first], unit_of_row[second]
        there = (times[a] > 0) & (times[b] > 0)
        assert drawn.lowest[sample] == cells[there & is_one].min()
        assert drawn.highest[sample] == cells[there & ~is_one].max()
        assert times.sum() == min(9, most_units)
        for column, threshold in enumerate(thresholds):
            expected = np.zeros(2)
            for i in range(len(x)):
                for j in range(i):
                    a, b = unit_of_row[i], unit_of_row[j]
                    weight = times[a] if a == b else times[a] * times[b]
                    if scores[i, j] >= threshold:
                        expected[int(classes[i] != classes[j])] += weight
            assert drawn.hits[sample, column] == expected[0]
            assert drawn.false[sample, column] == expected[1]
