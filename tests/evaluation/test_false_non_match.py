"""False non-match rates against loops over all pairs."""

import itertools

import numpy as np
import pytest

from keras_dml.evaluation import Protocol, calibrate, evaluate_embeddings


def naive(positive: list[float], negative: list[float], rate: float) -> float:
    """The lowest threshold that few enough negatives reach."""
    for threshold in sorted([*positive, *negative, np.inf]):
        if sum(x >= threshold for x in negative) <= rate * len(negative):
            return sum(x < threshold for x in positive) / len(positive)
    raise AssertionError


def pairs(
    x: np.ndarray, labels: np.ndarray, distance: str
) -> tuple[list[float], list[float]]:
    """Scores of all pairs of one class, and of two."""
    scores = x @ x.T
    if distance == "cosine":
        norms = np.linalg.norm(x, axis=1)
        scores = scores / norms[:, None] / norms
    if distance == "euclidean":
        scores = -np.square(x[:, None] - x).sum(-1)
    # The same pair from either side rounds in two ways.
    scores = scores.round(9)
    positive: list[float] = []
    negative: list[float] = []
    for i, j in itertools.permutations(range(len(x)), 2):
        same = labels[i] == labels[j]
        (positive if same else negative).append(scores[i, j])
    return positive, negative


@pytest.mark.parametrize(
    ("distance", "rate"), [("cosine", 0.01), ("euclidean", 0.1), ("dot", 0.1)]
)
def test_random_embeddings(distance, rate):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 32)
    x = rng.standard_normal((6, 5))[labels] + rng.standard_normal((32, 5))
    expected = naive(*pairs(x, labels, distance), rate)
    name = f"fnmr@fmr={rate}"
    found = evaluate_embeddings(x, labels, metrics=name, distance=distance)
    assert found[name] == pytest.approx(expected, abs=1e-12)
    threshold = calibrate(
        x, labels, f"fpr={rate}", distance=distance, num_resamples=0
    )
    assert found[name] == pytest.approx(1 - threshold.true_positive_rate)


def test_blocks_groups_and_galleries(monkeypatch):
    rng = np.random.default_rng(1)
    x, labels = rng.standard_normal((60, 3)), rng.integers(0, 5, 60)
    cameras = rng.integers(0, 2, 60)
    protocol = Protocol(np.arange(40), np.arange(20, 60))
    options = {"metrics": "fnmr@fmr=0.1", "distance": "dot"}
    monkeypatch.setattr("keras_dml.evaluation.pair_counts.SIDE", 7)
    found = evaluate_embeddings(
        x, labels, protocol=protocol, exclude=cameras, **options
    )
    scores, positive, negative = x @ x.T, [], []
    for i in range(40):
        for j in range(20, 60):
            same = labels[i] == labels[j]
            if i != j and not (same and cameras[i] == cameras[j]):
                (positive if same else negative).append(scores[i, j])
    expected = naive(positive, negative, 0.1)
    assert found["fnmr@fmr=0.1"] == pytest.approx(expected, abs=1e-12)
