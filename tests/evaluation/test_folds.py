"""LFW's accuracy: thresholds of nine folds, measured on the tenth."""

import numpy as np
import pytest

from keras_dml.data import ArraySet, PairSet
from keras_dml.evaluation import fold_accuracy

RNG = np.random.default_rng(0)
SUBJECTS = np.arange(120) // 4
X = RNG.normal(size=(120, 8)) + RNG.normal(size=(30, 8))[SUBJECTS]


def trials(count: int = 300) -> PairSet:
    """As in LFW: in each fold, first pairs of one subject, then of two."""
    pairs, positive = [], []
    for _ in range(10):
        for kind in (1, 0):
            for _ in range(count // 20):
                first, other = RNG.choice(120, 2, replace=False)
                while (SUBJECTS[first] == SUBJECTS[other]) != kind:
                    first, other = RNG.choice(120, 2, replace=False)
                pairs.append((first, other))
                positive.append(kind)
    return PairSet(ArraySet(X), pairs, positive)


def scores(pairs: PairSet, distance: str) -> np.ndarray:
    a, b = X[pairs.rows[:, 0]], X[pairs.rows[:, 1]]
    if distance == "euclidean":
        return -np.linalg.norm(a - b, axis=1)
    if distance == "cosine":
        a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    return (a * b).sum(axis=1)


def naive(score, positive, folds) -> tuple[list[float], list[float]]:
    accuracies, thresholds = [], []
    for fold in sorted(set(folds)):
        training_pairs = [i for i in range(len(score)) if folds[i] != fold]
        values = sorted(score[i] for i in training_pairs)
        cuts = [(a + b) / 2 for a, b in zip(values, values[1:], strict=False)]
        cuts = [values[0] - 1e-9, *cuts, values[-1] + 1e-9]
        right = [
            sum((score[i] >= cut) == positive[i] for i in training_pairs)
            for cut in cuts
        ]
        cut = cuts[right.index(max(right))]
        rest = [i for i in range(len(score)) if folds[i] == fold]
        hits = [(score[i] >= cut) == positive[i] for i in rest]
        accuracies.append(sum(hits) / len(rest))
        thresholds.append(cut)
    return accuracies, thresholds


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "dot"])
@pytest.mark.parametrize("folds", [10, 5, 2, "ids", "names", "uneven"])
def test_fold_accuracy_matches_a_loop(folds, distance: str) -> None:
    pairs = trials()
    count = len(pairs)
    ids = np.arange(count) * folds // count if isinstance(folds, int) else (
        RNG.permutation(count) % 7 if folds != "uneven"
        else (RNG.random(count) < 0.2).astype(int)
    )  # fmt: skip
    passed = folds if isinstance(folds, int) else ids
    if folds == "names":
        passed = [f"fold {x}" for x in ids]
    accuracy = fold_accuracy(X, pairs, passed, distance=distance)
    expected, thresholds = naive(scores(pairs, distance), pairs.positive, ids)
    assert accuracy.accuracies == pytest.approx(expected)
    assert accuracy.thresholds == pytest.approx(thresholds, rel=1e-3, abs=1e-4)
    assert accuracy.mean == pytest.approx(np.mean(expected))
    error = np.sqrt(np.var(expected, ddof=1) / len(expected))
    assert accuracy.standard_error == pytest.approx(error)
    assert 0.6 < accuracy.mean < 1
    assert (
        str(accuracy)
        == f"{accuracy.mean:.4f} ± {error:.4f} ({len(expected)} folds)"
    )


def test_separable_pairs_have_accuracy_one() -> None:
    x = np.eye(4)[[0, 0, 1, 1, 2, 2, 3, 3]]
    pairs = [(0, 1), (0, 2), (2, 3), (2, 5), (4, 5), (4, 7), (6, 7), (6, 1)]
    accuracy = fold_accuracy(x, PairSet(ArraySet(x), pairs, [1, 0] * 4), 4)
    assert (accuracy.mean, accuracy.standard_error) == (1, 0)
    assert accuracy.thresholds == pytest.approx([0.5] * 4, abs=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "`folds` of fold_accuracy"),
        ({"folds": 2.5}, "`folds` of fold_accuracy"),
        ({"folds": [0, 1]}, r"fold of each of the 300 pairs.*shape \(2,\)"),
        ({"folds": [3] * 300}, "at least two different"),
        ({"folds": 20}, "each have positive and negative pairs.*15 of one"),
        ({"pairs": SUBJECTS}, "`pairs` of fold_accuracy must be a PairSet"),
        ({"embeddings": X[:9]}, "`embeddings` of fold_accuracy must be those"),
        ({"distance": "l1"}, "distance"),
    ],
)
def test_unfit_folds_raise(change, message: str) -> None:
    arguments = {"embeddings": X, "pairs": trials(), **change}
    with pytest.raises(ValueError, match=f"(?s){message}"):
        fold_accuracy(**arguments)
