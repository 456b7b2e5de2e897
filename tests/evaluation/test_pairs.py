from itertools import combinations

import numpy as np
import pytest

from keras_dml.evaluation import pairs
from keras_dml.evaluation.pairs import negative_pairs, positive_pairs

LABELS = np.array([5, 2, 5, 9, 2, 5, 7])


def as_set(index_pairs) -> set:
    return {tuple(sorted(pair)) for pair in np.stack(index_pairs, 1).tolist()}


@pytest.mark.parametrize(
    ("find", "same"), [(positive_pairs, True), (negative_pairs, False)]
)
def test_all_pairs_are_found_once(find, same) -> None:
    expected = {
        (i, j)
        for i, j in combinations(range(7), 2)
        if (LABELS[i] == LABELS[j]) == same
    }
    index_pairs = find(LABELS)
    assert as_set(index_pairs) == expected
    assert len(index_pairs[0]) == len(expected)


@pytest.mark.parametrize(
    ("find", "same"), [(positive_pairs, True), (negative_pairs, False)]
)
@pytest.mark.parametrize("enumerable", [10, 2_000_000])
def test_sampled_pairs_are_of_the_asked_kind(
    find, same, enumerable, monkeypatch
) -> None:
    monkeypatch.setattr(pairs, "MAX_LISTED_PAIRS", enumerable)
    labels = np.random.default_rng(0).integers(4, size=60)
    first, second = find(labels, 50, seed=1)
    assert len(first) == len(second) == 50
    assert (first != second).all()
    assert ((labels[first] == labels[second]) == same).all()
    again = find(labels, 50, seed=1)
    np.testing.assert_array_equal(again, (first, second))


def test_drawn_positive_pairs_are_equally_likely(monkeypatch) -> None:
    monkeypatch.setattr(pairs, "MAX_LISTED_PAIRS", 1)
    labels = np.array([0] * 5 + [1] * 2)  # Ten pairs and one.
    first, _ = positive_pairs(labels, 22_000)
    share = (labels[first] == 1).mean()
    assert share == pytest.approx(1 / 11, abs=0.01)


SETS = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]], bool)


@pytest.mark.parametrize("enumerable", [1, 2_000_000])
def test_pairs_that_share_a_label_are_positive(enumerable, monkeypatch) -> None:
    monkeypatch.setattr(pairs, "MAX_LISTED_PAIRS", enumerable)
    shared = {(0, 1), (0, 2), (1, 2)}
    first, second = positive_pairs(SETS, 6_000)
    assert as_set((first, second)) == shared
    assert as_set(negative_pairs(SETS, 6_000)) == {
        pair for pair in combinations(range(5), 2) if pair not in shared
    }
    # The first two share two labels, and are drawn as often as others.
    share = (first + second == 1).mean()
    assert share == pytest.approx(1 / 3, abs=0.03)
    assert len(negative_pairs(SETS[:3], 5)[0]) == 0


def test_sets_without_such_pairs_give_none() -> None:
    for find, labels in ((positive_pairs, [1, 2]), (negative_pairs, [1, 1])):
        first, second = find(np.array(labels))
        assert len(first) == len(second) == 0
