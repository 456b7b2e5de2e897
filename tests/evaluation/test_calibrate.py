"""Thresholds against loops over all pairs."""

import json

import numpy as np
import pytest

from keras_dml.evaluation import (
    Protocol,
    Threshold,
    calibrate,
    evaluate_embeddings,
    pair_counts,
)
from keras_dml.evaluation.confidence import percentiles, times_drawn
from keras_dml.evaluation.pair_counts import (
    STEP,
    AllPairs,
    Factors,
    PairCounts,
)
from keras_dml.evaluation.verification import Criterion
from tests.evaluation.all_pairs import embeddings, pairs


def gaps(same, other, values) -> np.ndarray:
    """Gap between both error rates at each threshold."""
    rejected = (same[:, None] < values).mean(axis=0)
    return np.abs(rejected - (other[:, None] >= values).mean(axis=0))


def test_false_non_match_rate_heeds_groups_and_galleries(monkeypatch) -> None:
    rng = np.random.default_rng(1)
    x, labels = rng.standard_normal((60, 3)), rng.integers(0, 5, 60)
    cameras = rng.integers(0, 2, 60)
    monkeypatch.setattr(pair_counts, "BLOCK_SIDE", 7)
    results = evaluate_embeddings(
        x, labels, metrics="fnmr@fmr=0.1", distance="dot", exclude=cameras,
        protocol=Protocol(np.arange(40), np.arange(20, 60)),
    )  # fmt: skip
    scores, positive, negative = x @ x.T, [], []
    for i in range(40):
        for j in range(20, 60):
            same = labels[i] == labels[j]
            if i != j and not (same and cameras[i] == cameras[j]):
                (positive if same else negative).append(scores[i, j])
    # The lowest threshold that few enough negatives reach.
    allowed = 0.1 * len(negative)
    threshold = next(
        t
        for t in sorted([*positive, *negative])
        if np.sum(np.array(negative) >= t) <= allowed
    )
    expected = np.mean(np.array(positive) < threshold)
    assert results["fnmr@fmr=0.1"] == pytest.approx(expected, abs=1e-12)


def test_allowed_rate_may_be_reached() -> None:
    counts = PairCounts(np.array([4, 3, 0]), np.array([20, 1, 0]))
    assert Criterion("fpr", 0.05).choose(counts) == 1


def test_f1_threshold_matches_scikit_learn() -> None:
    from sklearn.metrics import f1_score, precision_recall_curve

    x, labels = embeddings()
    same, other = pairs(x, labels)
    scores = np.concatenate([same, other])
    truth = np.repeat([True, False], [len(same), len(other)])
    precision, recall, _ = precision_recall_curve(truth, scores)
    total = np.maximum(precision + recall, 1e-12)
    best = (2 * precision * recall / total).max()
    threshold = calibrate(x, labels, "f1", num_resamples=0)
    assert f1_score(truth, scores >= threshold.value) == pytest.approx(best)
    accepted = scores >= threshold.value
    assert threshold.precision == truth[accepted].mean()


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "dot"])
def test_thresholds_match_a_loop_over_all_pairs(distance) -> None:
    x, labels = embeddings()
    x = x * np.random.default_rng(0).uniform(1, 9, (len(x), 1)) + 2
    names = np.array([f"class {label:02}" for label in labels])

    def score(i: int, j: int) -> float:
        if distance == "euclidean":
            return -float(np.linalg.norm(x[i] - x[j]))
        norms = np.linalg.norm(x[[i, j]], axis=1)
        return float(x[i] @ x[j] / (1 if distance == "dot" else norms.prod()))

    pairs = [(i, j) for i in range(len(x)) for j in range(i)]
    scores = np.array([score(*pair) for pair in pairs])
    truth = np.array([labels[i] == labels[j] for i, j in pairs])
    same, other = scores[truth], scores[~truth]
    for criterion in ("eer", "fpr=0.05", "f1"):
        threshold = calibrate(
            x, names, criterion, distance=distance, num_resamples=50
        )
        assert threshold.low < threshold.value < threshold.high
        assert threshold.true_positive_rate == (same >= threshold.value).mean()
        assert (
            threshold.false_positive_rate == (other >= threshold.value).mean()
        )
        assert (threshold.distance in str(threshold)) == (distance != "cosine")
        if criterion == "fpr=0.05":
            rejected = other[other < threshold.value]
            assert (other >= threshold.value).mean() <= 0.05
            assert (other >= rejected.max()).mean() > 0.05
            name = "fnmr@fmr=0.05"
            rates = evaluate_embeddings(
                x, names, metrics=name, distance=distance
            )
            assert rates[name] == pytest.approx(
                1 - threshold.true_positive_rate
            )
    threshold = calibrate(x, labels, distance=distance, num_resamples=0)
    totals = threshold.num_positive_pairs, threshold.num_negative_pairs
    assert totals == (len(same), len(other)) and threshold.low is None
    smallest = gaps(same, other, scores).min()
    assert gaps(same, other, threshold.value) == pytest.approx(
        smallest, abs=1e-12
    )
    content = json.loads(json.dumps(threshold.to_dict()))
    assert Threshold.from_dict(content) == threshold


@pytest.mark.parametrize("criterion", ["eer", "f1"])
def test_threshold_is_the_middle_of_a_gap(criterion) -> None:
    x = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    threshold = calibrate(x, [0, 0, 1, 1], criterion, num_resamples=0)
    assert threshold.value == pytest.approx(0.5, abs=1e-5)
    assert (threshold.true_positive_rate, threshold.false_positive_rate) == (
        1,
        0,
    )


def test_interval_contains_the_threshold() -> None:
    criterion = "eer"
    x, labels = embeddings(classes=40, images=4)
    threshold = calibrate(x, labels, criterion, num_resamples=60)
    assert threshold.low < threshold.value < threshold.high
    low, high = threshold.true_positive_low, threshold.true_positive_high
    assert 0 < low < threshold.true_positive_rate < high <= 1
    narrow = calibrate(x, labels, criterion, num_resamples=60, confidence=0.5)
    assert narrow.high - narrow.low < threshold.high - threshold.low


def best_of_sample(
    ascending, is_one, weights, criterion
) -> tuple[float, float]:
    """The threshold of weighted pairs, and the share of hits: by all of them.

    The middle of the first best run of thresholds, or for "fpr" its lowest.
    """
    drawn = weights > 0
    s, t, w = ascending[drawn], is_one[drawn], weights[drawn]
    hits = np.append(np.cumsum((w * t)[::-1])[::-1], 0)
    false = np.append(np.cumsum((w * ~t)[::-1])[::-1], 0)
    if not (hits[0] and false[0]):
        return np.nan, np.nan
    if criterion == "fpr=0.05":
        first = int(np.argmax(false <= 0.05 * false[0]))
        return s[first - 1], hits[first] / hits[0]
    quality = {
        "eer": -np.abs((hits[0] - hits) * false[0] - false * hits[0]),
        "f1": 2 * hits / (hits[0] + hits + false),
    }[criterion]
    first = last = int(np.argmax(quality))
    while last + 1 < len(quality) and quality[last + 1] == quality[first]:
        last += 1
    # Thresholds in (s[i - 1], s[i]] accept pairs i and later.
    low, high = np.append(np.append(-1, s), 1)[[first, last + 1]]
    return (low + high) / 2, hits[first] / hits[0]


@pytest.mark.parametrize(
    ("criterion", "classes", "images", "signal"),
    # Far apart, with a gap between the two kinds of pairs; nearly; overlapping.
    [
        ("f1", 20, 5, 20.0),
        ("eer", 50, 4, 3.5),
        ("fpr=0.05", 6, 4, 12.0),
        ("eer", 30, 6, 1.25),
        ("f1", 30, 6, 1.25),
        ("fpr=0.05", 30, 6, 1.25),
    ],
)
def test_intervals_match_resamples_written_out(
    criterion, classes, images, signal
) -> None:
    x, labels = embeddings(classes, images, 32, signal)
    result = calibrate(x, labels, criterion, num_resamples=100)
    number = labels // 7
    a, b = np.tril_indices(len(x), -1)
    scores = np.einsum("nd,nd->n", *x[[a, b]].astype(float))
    order = np.argsort(scores)
    scores, a, b = scores[order], a[order], b[order]
    is_one = number[a] == number[b]
    rng = np.random.default_rng(0)
    unit = rng.permutation(classes)[number]
    times = times_drawn(rng, 100, classes)
    samples = [
        best_of_sample(
            scores,
            is_one,
            np.where(is_one, n[unit[a]], n[unit[a]] * n[unit[b]]),
            criterion,
        )
        for n in times
    ]
    (low, high), (rate_low, rate_high) = np.nanquantile(
        samples, [0.025, 0.975], axis=0
    ).T
    assert result.low == pytest.approx(low, abs=0.012)
    assert result.high == pytest.approx(high, abs=0.012)
    assert result.true_positive_low == pytest.approx(rate_low, abs=0.02)
    assert result.true_positive_high == pytest.approx(rate_high, abs=0.02)
    assert result.low <= result.value <= result.high
    if result.true_positive_rate == 1 and criterion != "fpr=0.05":
        # A gap: exactly its middle in every sample.
        assert (result.low, result.high) == pytest.approx((low, high), abs=1e-5)


@pytest.mark.parametrize(
    ("criterion", "classes"), [("eer", 2), ("f1", 4), ("fpr=0.1", 5)]
)
def test_few_classes_have_no_interval_but_a_reason(criterion, classes) -> None:
    x, labels = embeddings(classes, 6)
    threshold = calibrate(x, labels, criterion, num_resamples=50)
    if classes < 5:
        assert (threshold.low, threshold.high) == (None, None)
        assert threshold.true_positive_low is None
        said = f"[no interval: {classes} classes are too few]"
        assert said in str(threshold)
    else:
        assert threshold.low < threshold.high
        assert threshold.low <= threshold.value <= threshold.high


@pytest.mark.parametrize("most_units", [512, 5])
def test_bootstrap_counts_match_drawn_classes(most_units, monkeypatch) -> None:
    """The reference draws classes image by image; copies stay apart."""
    monkeypatch.setattr(pair_counts, "MAX_UNITS", most_units)
    monkeypatch.setattr(pair_counts, "UNIT_ROWS", 3)
    monkeypatch.setattr(pair_counts, "UNIT_PAIRS", 40)
    x, labels = embeddings(classes=9, images=4)
    classes = labels // 7
    factors = Factors.of(x, x, "cosine")
    thresholds = np.array([-1.0, 0.1, 0.5, 0.75])
    positions = np.round((thresholds + 1) / STEP).astype(int)
    drawn = AllPairs(factors, classes).bootstrap(6, 1, positions)
    scores = x.astype(float) @ x.astype(float).T
    # What was drawn: the units of the classes, and how often each.
    rng, units = np.random.default_rng(1), min(9, most_units)
    unit_of_row = (rng.permutation(9) % units)[classes]
    first, second = np.tril_indices(len(x), -1)
    is_one = classes[first] == classes[second]
    cells = np.floor((scores[first, second] + 1) / STEP)
    for sample, times in enumerate(times_drawn(rng, 6, units)):
        a, b = unit_of_row[first], unit_of_row[second]
        there = (times[a] > 0) & (times[b] > 0)
        assert drawn.lowest[sample] == cells[there & is_one].min()
        assert drawn.highest[sample] == cells[there & ~is_one].max()
        assert times.sum() == units
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


def test_too_many_undefined_samples_have_no_interval() -> None:
    samples = np.array([1.0, 2, 3, np.nan])
    assert percentiles(samples, 2.5, 0.9) == pytest.approx((1.1, 2.9))
    assert percentiles(samples, 4, 0.9) is None
    assert percentiles(np.full(3, np.nan), 4, 0.9) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"criterion": "err"}, "criterion='err'"),
        ({"distance": "manhattan"}, "`distance` of calibrate must be one of"),
        ({"criterion": "fpr=2"}, "between 0 and 1"),
        ({"criterion": "fpr=1e-9"}, "at least one of the diff"),
        ({"labels": np.arange(60)}, "0 same-class pairs"),
        ({"labels": np.zeros(60, int)}, "0 different-class"),
        ({"labels": [1, 2]}, "one id per embedding"),
        ({"labels": None}, "`labels` of calibrate must be integers"),
        ({"labels": np.zeros((60, 3), bool)}, "one class per image"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"num_resamples": -1}, "num_resamples=-1"),
    ],
)
def test_unfit_arguments_raise(change, message) -> None:
    x, labels = embeddings()
    with pytest.raises(ValueError, match=message):
        calibrate(**{"embeddings": x, "labels": labels, **change})
