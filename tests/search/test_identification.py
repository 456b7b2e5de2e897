"""Thresholds of searches, on classes outside the gallery."""

import dataclasses
import json

import numpy as np
import pytest

from keras_dml.data import ArraySet
from keras_dml.evaluation import IdentificationThreshold
from keras_dml.evaluation.identification import OpenSet, parse_rate
from keras_dml.search import Index, Threshold
from keras_dml.search import identification as searched


def draw(classes, images, dim, seed, signal=2.0):
    """Embeddings and labels of classes that differ by seed."""
    rng = np.random.default_rng(seed)
    x = signal * np.repeat(rng.normal(size=(classes, dim)), images, axis=0)
    return x + rng.normal(size=x.shape), np.repeat(np.arange(classes), images)


def share_of_matches(index, x) -> float:
    return float(np.mean([hit is not None for hit in index.search(x).matches]))


@pytest.mark.parametrize(
    ("factory", "classes", "dim", "metric"),
    [
        ("Flat", 20, 8, "cosine"),
        pytest.param("Flat", 300, 32, "euclidean", marks=pytest.mark.slow),
        pytest.param("HNSW16", 150, 16, "cosine", marks=pytest.mark.slow),
    ],
)
def test_absent_classes_reach_the_threshold_at_the_asked_rate(
    factory, classes, dim, metric
) -> None:
    """Measured on 200 further classes, of which none is in the gallery."""
    x, labels = draw(classes, 10, dim, 1)
    index = Index(x, {"label": labels}, factory=factory, metric=metric)
    threshold = index.calibrate(
        *draw(80, 10, dim, 2), criterion="fpir=0.05", num_resamples=100
    )
    true = share_of_matches(index, draw(200, 10, dim, 3)[0])
    assert threshold.false_positive_low <= true <= threshold.false_positive_high
    assert true == pytest.approx(0.05, abs=0.04)
    assert threshold.false_positive_identification_rate == pytest.approx(
        0.05, abs=0.015
    )
    assert threshold.low < threshold.value < threshold.high
    assert threshold.gallery_rows == len(index) == 10 * classes
    # By pairs, as good as every query is a match.
    index.calibrate(*draw(80, 10, dim, 2), criterion="eer", num_resamples=0)
    assert share_of_matches(index, draw(200, 10, dim, 3)[0]) > 0.3


@pytest.mark.slow
def test_intervals_contain_the_true_rate() -> None:
    inside, rates = 0, []
    for seed in range(40):
        index = Index(draw(50, 4, 12, 3 * seed)[0])
        threshold = index.calibrate(
            *draw(40, 6, 12, 3 * seed + 1), "fpir=0.05", num_resamples=100
        )
        true = share_of_matches(index, draw(300, 4, 12, 3 * seed + 2)[0])
        rates.append((true, threshold.false_positive_identification_rate))
        inside += (
            threshold.false_positive_low
            <= true
            <= threshold.false_positive_high
        )
    assert inside >= 36
    true, said = np.mean(rates, axis=0)
    assert true == pytest.approx(0.05, abs=0.012)
    assert said == pytest.approx(true, abs=0.008)


def loop(index, x, labels, own_classes) -> np.ndarray:
    """Best score of each query apart from rows of `own_classes`, and copies."""
    rows = index.embeddings.astype(float)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    best = []
    for query, label in zip(x, labels, strict=True):
        scores = rows @ query
        is_out = np.array([label in each for each in own_classes]) | (
            scores > 1 - 1e-6
        )
        best.append(scores[~is_out].max())
    return np.array(best)


@pytest.mark.parametrize("by", ["name", "label", "list"])
def test_rows_of_the_own_class_and_copies_are_left_out(by) -> None:
    """Half of the calibration classes are in the gallery, some images too."""
    x, labels = draw(24, 12, 8, 1)
    rows = np.flatnonzero((labels < 16) | (labels == 20))
    # Numbers of the gallery are others, and only names are the same.
    shown = 100 - labels[rows] if by == "name" else labels[rows]
    columns = {"label": shown.tolist()}
    own_classes = [{label} for label in labels[rows].tolist()]
    if by == "name":
        columns["name"] = [f"class {label}" for label in labels[rows]]
    if by == "list":
        columns["label"] = [[each, 77] for each in columns["label"]]
    index = Index(x[rows], columns)
    selection = np.flatnonzero((labels >= 8) & (np.arange(len(x)) % 2 == 0))
    names = {n: f"class {n}" for n in range(24)}
    examples = ArraySet(
        x[selection].astype(np.float32), labels[selection], names
    )
    assert examples.names[8] == "class 8"
    threshold = index.calibrate(
        x[selection],
        [names[n] for n in labels[selection]]
        if by == "name"
        else labels[selection],
        "fpir=0.1",
        num_resamples=0,
    )
    best = loop(index, x[selection], labels[selection], own_classes)
    expected = OpenSet(np.float32(best), labels[selection], 0.1)
    assert threshold.value == pytest.approx(
        expected.threshold(np.ones(16)), abs=1e-6
    )
    assert threshold.num_images == len(selection)
    assert threshold.false_positive_identification_rate == pytest.approx(
        expected.held_out_rates(0).mean()
    )


def test_copies_are_left_out_without_class_labels() -> None:
    x, labels = draw(30, 1, 8, 1)
    index = Index(x)
    threshold = index.calibrate(x, labels, "fpir=0.1", num_resamples=0)
    assert threshold.value < 0.999
    assert threshold.true_positive_identification_rate is None


@pytest.mark.parametrize("factory", ["Flat", "IVF4,Flat", "SQ8"])
def test_true_positive_rate_is_measured_in_the_gallery(factory) -> None:
    """Each row is searched among the others, and its class must be nearest."""
    x, labels = draw(20, 5, 8, 1)
    x, labels = np.vstack([x, x[:1] + 9]), np.append(labels, 99)
    index = Index(
        x, {"label": labels}, factory=factory, parameters={
            "IVF4,Flat": "nprobe=4"}.get(factory)
    )  # fmt: skip
    threshold = index.calibrate(*draw(40, 5, 8, 2), "fpir=0.1", num_resamples=0)
    hits = index.search(x[:100], 2, exclude=np.arange(100))
    expected = [
        bool(each[0].is_match and each[0].row["label"] == label)
        for each, label in zip(hits, labels, strict=False)
    ]
    # The class of one image is not asked for.
    assert threshold.num_true_positive_queries == 100
    near = 0.011 if factory == "SQ8" else 1e-9
    assert threshold.true_positive_identification_rate == pytest.approx(
        np.mean(expected), abs=near
    )
    assert 0 < np.mean(expected) < 1


def test_searched_rows_of_the_gallery_are_capped(monkeypatch) -> None:
    monkeypatch.setattr(searched, "_MAX_QUERIES", 30)
    x, labels = draw(20, 5, 8, 1)
    index = Index(x, {"label": labels})
    threshold = index.calibrate(*draw(40, 5, 8, 2), num_resamples=0)
    assert threshold.num_true_positive_queries == 30


def test_quantiles_match_those_by_hand() -> None:
    """Nine queries of one class each: a tenth of ten is the best of them."""
    scores = np.float32([0.1, 0.9, 0.3, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8])
    just_above = np.nextafter(np.float32(0.9), np.float32(1))
    for rate in (0.01, 0.1, 1 / 9):
        value = OpenSet(scores, np.arange(9), rate).threshold(np.ones(9))
        assert value == just_above
    value = OpenSet(scores, np.arange(9), 2 / 9).threshold(np.ones(9))
    assert value == pytest.approx(0.8) and value > np.float32(0.8)
    # A class of many images has the weight of the others.
    of_class = np.array([0] * 6 + [1, 2, 3])
    sample = OpenSet(scores, of_class, 0.25)
    assert sample.reached_shares(0.45).tolist() == pytest.approx(
        [2 / 6, 1, 1, 1]
    )
    assert sample.threshold(np.ones(4)) == pytest.approx(0.8 + 0.1 * 1 / 6)


def test_too_few_classes_raise_and_few_images_warn(caplog) -> None:
    x, labels = draw(10, 4, 8, 1)
    index = Index(x, {"label": labels})
    for count in (1, 2, 4):
        with pytest.raises(ValueError, match=f"least 5.*: {count} of them"):
            index.calibrate(*draw(count, 40, 8, 2))
    with pytest.raises(ValueError, match="at least 5 classes.* for 0 rows"):
        Index(x[:0]).calibrate(x, labels)
    assert not caplog.records
    # Pairs are compared without a gallery, and the interval is left out.
    assert index.calibrate(*draw(4, 40, 8, 2), "eer").no_interval
    threshold = index.calibrate(*draw(5, 40, 8, 2))
    assert threshold.num_classes == 5
    (said,) = caplog.records
    assert "5 classes with 200 images" in said.getMessage()
    caplog.clear()
    index.calibrate(*draw(20, 5, 8, 2), num_resamples=20)
    assert not caplog.records
    index.calibrate(*draw(20, 4, 8, 2), num_resamples=20)
    assert "100 images for criterion='fpir=0.01'" in caplog.text


def test_small_gallery_is_calibrated_with_other_classes() -> None:
    """With 26 products and 3 held out, other products calibrate."""
    x, labels = draw(26, 6, 16, 1, signal=3.0)
    index = Index(x, {"label": labels})
    with pytest.raises(ValueError) as error:
        index.calibrate(x[-18:], labels[-18:])
    assert "products of another shop, which need not be" in str(error.value)
    assert "search(…, threshold=0.6)" in str(error.value)
    new = draw(50, 6, 16, 3, signal=3.0)[0]
    products = draw(20, 6, 16, 2, signal=3.0)
    threshold = index.calibrate(products[0], products[1] + 1000, "fpir=0.05")
    rate = np.mean([hit is not None for hit in index.search(new).matches])
    assert rate < 0.15
    queries = draw(26, 12, 16, 1, signal=3.0)[0]
    hits = index.search(queries, threshold=threshold.value).matches
    assert np.mean([hit is not None for hit in hits]) > 0.5


@pytest.mark.parametrize("criterion", ["fpir=2", "fpir=", "fpir", "FPIR=0.1"])
def test_unfit_criteria_raise(criterion) -> None:
    index = Index(np.eye(4))
    with pytest.raises(ValueError, match="`criterion` of .*calibrate must be"):
        index.calibrate(np.eye(4), [0, 0, 1, 1], criterion)
    assert parse_rate("fpir=0.2") == 0.2 and parse_rate("eer") is None


def test_changed_gallery_size_is_logged_once(caplog) -> None:
    x, labels = draw(40, 5, 8, 1)
    index = Index(x, {"label": labels})
    index.calibrate(*draw(40, 5, 8, 2), num_resamples=20)
    index.add(x[:90])
    index.search(x[:1])
    assert not caplog.records
    index.add(x[:90])
    index.search(x[:1], threshold=0.5)
    assert not caplog.records
    for _ in range(3):
        index.search(x[:1])
        index.range_search(x[:1])
    (said,) = caplog.records
    assert "calibrated with 200 rows, and it has 380 now" in said.getMessage()
    caplog.clear()
    index.calibrate(*draw(40, 5, 8, 2), num_resamples=20)
    index.remove(range(250))
    index.search(x[:1])
    assert "with 380 rows, and it has 130 now: fewer" in caplog.text


def test_threshold_is_saved_and_printed_with_its_meaning(tmp_path) -> None:
    x, labels = draw(40, 5, 8, 1)
    index = Index(x, {"label": labels})
    threshold = index.calibrate(*draw(40, 5, 8, 2), num_resamples=20)
    index.save(tmp_path / "index")
    again = Index.load(tmp_path / "index")
    assert again.threshold == threshold
    content = json.loads(json.dumps(threshold.to_dict()))
    assert IdentificationThreshold.from_dict(content) == threshold
    hits = again.search(x[:2])
    assert hits.meaning == threshold.meaning
    assert "of queries whose class is not in the gallery of 200 rows" in str(
        threshold
    )
    assert again.search(x[:2], threshold=0.5).meaning == ""
    # Those of pairs say that they are.
    again.calibrate(*draw(40, 5, 8, 2), "eer", num_resamples=20)
    assert "of different-class pairs" in again.search(x[:2]).meaning
    again.save(tmp_path / "index")
    old = Index.load(tmp_path / "index").threshold
    assert isinstance(old, Threshold) and old == again.threshold
    bare = dataclasses.replace(
        threshold,
        distance="dot",
        low=None,
        false_positive_low=None,
        true_positive_identification_rate=None,
        false_positive_identification_rate=0.0123,
        value=0.5,
    )
    assert str(bare) == (
        "0.5000 (fpir=0.01, dot): reached by 1.23% of queries whose class is "
        "not in the gallery of 200 rows, measured on held-out ones of 40 "
        "classes"
    )
