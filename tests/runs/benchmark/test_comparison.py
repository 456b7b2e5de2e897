"""Means, intervals and paired tests by hand; test_report.py has scipy's."""

import warnings

import numpy as np
import pytest

from keras_dml.evaluation import evaluate_embeddings
from keras_dml.runs.benchmark.comparison import (
    averaged,
    mean_interval,
    paired_difference,
)

FIRST = [0.812, 0.807, 0.821, 0.799, 0.815]


def test_interval_by_hand() -> None:
    # s = 1, n = 3, t(0.975; 2) = 4.302653
    found = mean_interval([1.0, 2.0, 3.0])
    assert found.high - found.estimate == pytest.approx(4.302653 / 3**0.5)


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    samples = np.random.default_rng(0).normal(0.5, 0.1, (500, 3))
    found = [mean_interval(sample) for sample in samples]
    share = np.mean([x.low < 0.5 < x.high for x in found])
    assert share == pytest.approx(0.95, abs=0.03)


def test_differences_that_do_not_vary() -> None:
    same = paired_difference(FIRST, FIRST)
    assert (same.estimate, same.low, same.high) == (0, 0, 0)
    assert np.isnan(same.p_value)
    apart = paired_difference([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    assert (apart.low, apart.high, apart.p_value) == (1, 1, 0)


def test_values_that_are_not_finite() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = paired_difference([np.inf, 1.0], [np.inf, 2.0])
    assert np.isnan([found.low, found.high, found.p_value]).all()


def results(seed: int, classes: int = 10):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), 4)
    x = (
        np.eye(classes)[labels]
        + 0.7 * rng.standard_normal((len(labels),) * 2)[:, :classes]
    )
    return evaluate_embeddings(x, labels, metrics=("map@r", "nmi"))


def test_averaged_by_query() -> None:
    parts = [results(seed) for seed in range(3)]
    found = averaged(parts)
    for query in range(40):
        values = [part.per_query["map@r"][query] for part in parts]
        assert found.per_query["map@r"][query] == pytest.approx(sum(values) / 3)
    assert found["map@r"] == pytest.approx(found.per_query["map@r"].mean())
    assert found["nmi"] == pytest.approx(sum(p["nmi"] for p in parts) / 3)


def test_other_queries_are_not_averaged() -> None:
    with pytest.raises(ValueError, match="the same queries"):
        averaged([results(0), results(0, classes=9)])
