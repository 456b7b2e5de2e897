"""Lists of trials against scikit-learn and loops over the list."""

import numpy as np
import pytest
from sklearn.metrics import roc_curve

from keras_dml.data import ArraySet, PairSet, TripletSet
from keras_dml.evaluation import calibrate, evaluate_trials
from keras_dml.evaluation.pair_counts import subjects_of
from tests.evaluation.all_pairs import embeddings


def trials(
    signal: float = 1.0, has_labels: bool = True
) -> tuple[np.ndarray, PairSet]:
    """600 pairs of 120 embeddings, a third of them positive."""
    x, labels = embeddings(20, 6, 8, signal)
    a, b = np.tril_indices(len(x), -1)
    is_one = labels[a] == labels[b]
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [
            rng.choice(np.flatnonzero(is_one), 200, replace=False),
            rng.choice(np.flatnonzero(~is_one), 400, replace=False),
        ]
    )
    examples = ArraySet(x, labels if has_labels else None)
    pairs = np.stack([a[rows], b[rows]], axis=1)
    return x, PairSet(examples, pairs, is_one[rows])


def roc(x, pairs, distance="cosine"):
    a, b = x[pairs.rows.T].astype(np.float64)
    scores = (a * b).sum(axis=1)
    if distance == "euclidean":
        scores = -np.linalg.norm(a - b, axis=1)
    return roc_curve(pairs.positive, scores, drop_intermediate=False), scores


@pytest.mark.parametrize(
    ("distance", "signal"), [("cosine", 0.7), ("euclidean", 1.5), ("dot", 1.5)]
)
def test_metrics_match_scikit_learn(distance, signal) -> None:
    x, pairs = trials(signal)
    if distance != "cosine":
        x = x * np.random.default_rng(1).uniform(1, 3, (len(x), 1))
    (fpr, tpr, _), _ = roc(x, pairs, distance)
    results = evaluate_trials(
        x,
        pairs,
        ("eer", "tpr@fpr=0.05", "fnmr@fmr=0.05", "min_dcf=0.1"),
        distance=distance,
        num_resamples=50,
    )
    nearest = np.argmin(np.abs(fpr - (1 - tpr)))
    costs = (0.1 * (1 - tpr) + 0.9 * fpr) / 0.1
    expected = {
        "eer": (fpr[nearest] + 1 - tpr[nearest]) / 2,
        "tpr@fpr=0.05": tpr[fpr <= 0.05].max(),
        "fnmr@fmr=0.05": 1 - tpr[fpr <= 0.05].max(),
        "min_dcf=0.1": costs.min(),
    }
    assert {k: v.estimate for k, v in results.items()} == pytest.approx(
        expected
    )
    for interval in results.values():
        assert interval.low <= interval.estimate <= interval.high
        assert interval.low < interval.high


@pytest.mark.parametrize("criterion", ["eer", "f1", "fpr=0.05"])
def test_threshold_is_calibrated_on_trials(criterion) -> None:
    x, pairs = trials()
    threshold = calibrate(x, pairs, criterion, num_resamples=100)
    _, scores = roc(x, pairs)
    same, other = scores[pairs.positive], scores[~pairs.positive]
    assert (threshold.num_positive_pairs, threshold.num_negative_pairs) == (
        200,
        400,
    )
    assert threshold.true_positive_rate == (same >= threshold.value).mean()
    assert threshold.false_positive_rate == (other >= threshold.value).mean()
    assert threshold.low < threshold.value < threshold.high
    if criterion == "eer":
        gaps = [abs((same < t).mean() - (other >= t).mean()) for t in scores]
        gap = abs(
            1 - threshold.true_positive_rate - threshold.false_positive_rate
        )
        assert gap == pytest.approx(min(gaps), abs=1e-12)


def test_bootstrap_draws_subjects() -> None:
    """Subjects are labels, or components of positive pairs."""
    x, pairs = trials(has_labels=False)
    subjects = subjects_of(pairs)
    for (a, b), is_one in zip(pairs.rows, pairs.positive, strict=True):
        assert (subjects[a] == subjects[b]) or not is_one
    _, labelled = trials()
    subject = subjects_of(labelled)
    assert np.array_equal(subject, np.repeat(np.arange(20), 6))
    rng = np.random.default_rng(3)
    drawn = rng.integers(0, 20, (40, 20))
    times = np.stack([np.bincount(row, minlength=20) for row in drawn])
    _, scores = roc(x, labelled)
    a, b = subject[labelled.rows.T]
    errors = []
    for n in times:
        weights = np.where(a == b, n[a], n[a] * n[b])
        fpr, tpr, _ = roc_curve(
            labelled.positive, scores, sample_weight=weights
        )
        nearest = np.argmin(np.abs(fpr - (1 - tpr)))
        errors.append((fpr[nearest] + 1 - tpr[nearest]) / 2)
    low, high = np.quantile(errors, [0.025, 0.975])
    eer = evaluate_trials(x, labelled, "eer", num_resamples=40, seed=3)["eer"]
    assert (eer.low, eer.high) == pytest.approx((low, high), abs=0.004)


def test_few_subjects_have_no_interval() -> None:
    examples = ArraySet(np.eye(4, dtype=np.float32), [0, 0, 1, 1])
    pairs = PairSet(examples, [[0, 1], [2, 3], [0, 2]], [1, 1, 0])
    results = evaluate_trials(np.eye(4)[[0, 0, 1, 1]], pairs)
    assert results["eer"].estimate == 0 and np.isnan(results["eer"].low)
    assert "no interval" in str(results["eer"])
    threshold = calibrate(np.eye(4)[[0, 0, 1, 1]], pairs)
    assert threshold.value == pytest.approx(0.5, abs=1e-5)
    assert threshold.no_interval == "2 classes are too few"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": [[0, 1]]}, "`pairs` of evaluate_trials must be a PairSet"),
        ({"metrics": "recall@1"}, "must be metrics of pairs"),
        ({"distance": "manhattan"}, "`distance` of evaluate_trials"),
        ({"embeddings": np.eye(3)}, "3 embeddings for 120 examples"),
        ({"confidence": 2}, "confidence=2"),
    ],
)
def test_unfit_arguments_raise(change, message) -> None:
    x, pairs = trials()
    with pytest.raises(ValueError, match=message):
        evaluate_trials(**{"embeddings": x, "pairs": pairs, **change})


def test_pairs_of_one_kind_raise() -> None:
    x, pairs = trials()
    positive_pairs = PairSet(pairs.examples, pairs.rows[:9])
    with pytest.raises(ValueError, match="9 positive and 0 negative"):
        evaluate_trials(x, positive_pairs)
    with pytest.raises(ValueError, match="0 different-class pairs"):
        calibrate(x, positive_pairs)
    triplets = TripletSet(pairs.examples, [[0, 1, 2]])
    with pytest.raises(ValueError, match="Use a PairSet"):
        calibrate(x, triplets)
