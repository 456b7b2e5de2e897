"""Mining by rank against explicit sorting."""

import numpy as np
import pytest

from keras_dml.losses import TripletLoss
from keras_dml.losses.mining import MultiSimilarity, Selection, get
from keras_dml.losses.pairs import compare
from tests.losses.oracle import LABELS, batch, sets, unit


def explicit(labels, x, positive, negative):
    """Weights of pairs, counted triplet by triplet."""
    weights = np.zeros((2, len(labels), len(labels)))
    for a, same, other in sets(labels):
        if not same or not other:
            continue
        d = np.linalg.norm(x[a] - x, axis=1)
        if positive != "all":
            pick = min if positive == "easy" else max
            same = [pick(same, key=lambda p: d[p])]
        for p in same:
            beyond = [n for n in other if d[n] > d[p]]
            chosen = {
                "all": other,
                "easy": [max(other, key=lambda n: d[n])],
                "hard": [min(other, key=lambda n: d[n])],
                "semihard": [
                    min(beyond, key=lambda n: d[n])
                    if beyond
                    else max(other, key=lambda n: d[n])
                ],
            }[negative]
            for n in chosen:
                weights[0, a, p] += 1
                weights[1, a, n] += 1
    return weights


@pytest.mark.parametrize(
    ("positive", "negative", "which"),
    [
        (positive, negative, "balanced")
        for positive in ("all", "easy", "hard")
        for negative in ("all", "easy", "semihard", "hard")
    ]
    + [
        (*strategies, which)
        for strategies in (("all", "semihard"), ("hard", "hard"))
        for which in ("unbalanced", "pairs")
    ],
)
def test_selected_pairs_match_a_loop(positive, negative, which):
    labels = LABELS[which]
    x = unit(batch(labels, dim=3, seed=0))
    pairs = compare(np.array(labels), x.astype("float32"))
    actual = Selection(positive, negative).pair_weights(pairs)
    if positive == negative == "all":
        expected = [pairs.positive, pairs.negative]
    else:
        expected = explicit(labels, x, positive, negative)
    np.testing.assert_array_equal(actual, expected)


def test_names_select_kinds_of_pairs():
    assert get("all") == Selection("all", "all")
    assert get("easy") == Selection("easy", "semihard")
    assert get("semihard") == Selection("all", "semihard")
    assert get("hard") == Selection("hard", "hard")
    assert get({"name": "easy", "negative": "hard"}) == Selection(
        "easy", "hard"
    )


def test_easy_pairs_cost_nothing_only_with_easy_negatives():
    # Two classes that overlap: the closest positive is closer than the
    # farthest negative by more than the margin, not than the next one.
    angles = np.linspace(0, 1.5, 12)
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype("float32")
    labels = np.arange(12) % 2
    easy = TripletLoss(0.1, mining="easy")(labels, x)
    both = TripletLoss(0.1, mining=Selection("easy", "easy"))(labels, x)
    assert float(easy) > 0.005
    assert float(both) == 0


def test_ties_are_broken_once():
    labels = np.array([0, 0, 1, 1, 1])
    x = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], "float32")
    _, negative = Selection("hard", "hard").pair_weights(compare(labels, x))
    np.testing.assert_array_equal(np.sum(negative, axis=1), np.ones(5))


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("epsilon", [0.1, -0.4])
def test_multi_similarity_keeps_hard_pairs(labels, epsilon):
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
