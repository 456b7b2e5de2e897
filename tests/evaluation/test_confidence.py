"""Bootstrap intervals and paired comparison."""

import functools

import numpy as np
import pytest

from keras_dml.evaluation import (
    Results,
    bootstrap,
    compare,
    evaluate_embeddings,
)


def data(noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(60), 8)
    x = np.random.default_rng(9).standard_normal((60, 6))[labels]
    return x + noise * rng.standard_normal(x.shape), labels


@functools.cache
def results_of(noise: float, seed: int = 0, **options):
    return evaluate_embeddings(*data(noise, seed), **options)


def with_noise(size: float) -> list[Results]:
    """Results of the same queries, without and with more noise."""
    x, labels = data(1.0)
    noise = np.random.default_rng(1).standard_normal(x.shape)
    return [evaluate_embeddings(y, labels) for y in (x, x + size * noise)]


def test_interval_matches_the_normal_approximation():
    results = results_of(1.0)
    intervals = bootstrap(results, confidence=0.9, num_resamples=4000)
    assert list(intervals) == list(results)
    for name, interval in intervals.items():
        values = results.per_query[name]
        error = 1.645 * values.std() / np.sqrt(len(values))
        assert interval.estimate == pytest.approx(results[name])
        assert interval.low == pytest.approx(results[name] - error, abs=0.003)
        assert interval.high == pytest.approx(results[name] + error, abs=0.003)


def test_interval_over_classes_resamples_class_means():
    results = results_of(1.0)
    interval = bootstrap(results, num_resamples=4000, units="classes")["map@r"]
    means = results.per_query["map@r"].reshape(60, 8).mean(axis=1)
    error = 1.96 * means.std() / np.sqrt(60)
    assert interval.low == pytest.approx(means.mean() - error, abs=0.006)
    assert interval.high == pytest.approx(means.mean() + error, abs=0.006)
    over_queries = bootstrap(results)["map@r"]
    assert interval.high - interval.low > over_queries.high - over_queries.low


def test_paired_comparison_is_sharper_than_two_intervals():
    first, second = with_noise(0.4)
    difference = compare(first, second)["map@r"]
    assert difference.estimate == pytest.approx(
        second["map@r"] - first["map@r"]
    )
    gains = second.per_query["map@r"] - first.per_query["map@r"]
    error = 1.96 * gains.std() / np.sqrt(len(gains))
    assert difference.low == pytest.approx(gains.mean() - error, abs=0.003)
    assert difference.high == pytest.approx(gains.mean() + error, abs=0.003)
    assert difference.high < 0 and difference.share_better < 0.025
    alone = bootstrap(first)["map@r"]
    assert difference.high - difference.low < alone.high - alone.low


def test_p_value_matches_the_normal_approximation():
    from scipy import stats

    first, second = with_noise(0.1)
    difference = compare(first, second, num_resamples=20000)["map@r"]
    gains = second.per_query["map@r"] - first.per_query["map@r"]
    z = abs(gains.mean()) / (gains.std() / np.sqrt(len(gains)))
    assert difference.p_value == pytest.approx(2 * stats.norm.sf(z), abs=0.02)
    other = compare(second, first, num_resamples=20000)["map@r"]
    assert difference.p_value == other.p_value


def test_better_and_worse_queries_are_sorted_by_gain():
    first, second = results_of(1.2), results_of(1.2, seed=1)
    comparison = compare(first, second)
    gains = second.per_query["map@r"] - first.per_query["map@r"]
    better, worse = comparison.better("map@r"), comparison.worse("map@r")
    assert set(better) == set(np.flatnonzero(gains > 0))
    assert set(worse) == set(np.flatnonzero(gains < 0))
    assert (np.diff(gains[better]) <= 0).all()
    assert (np.diff(gains[worse]) >= 0).all()
    assert len(better) and len(worse)


def test_comparison_and_interval_print_readably():
    first, second = results_of(1.0), results_of(1.5)
    text = str(compare(first, second, num_resamples=20))
    assert len(text.splitlines()) == len(first)
    assert "better in 0.0% of resamples" in text
    interval = str(bootstrap(first)["map@r"])
    assert interval.startswith(f"{first['map@r']:.4f} [")


def test_results_must_have_the_same_queries():
    x, labels = data(1.0)
    first = evaluate_embeddings(x, labels)
    for other in (
        evaluate_embeddings(x[8:], labels[8:]),
        evaluate_embeddings(x, labels + 1),
    ):
        with pytest.raises(ValueError, match="the same queries"):
            compare(first, other)


def test_results_must_share_a_metric():
    first = results_of(1.0, metrics="mrr")
    with pytest.raises(ValueError, match="share a retrieval metric"):
        compare(first, results_of(1.0, metrics="map@r"))
    with pytest.raises(ValueError, match="have a retrieval metric"):
        bootstrap(results_of(1.0, metrics="density"))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"num_resamples": 0}, "num_resamples=0"),
        ({"units": "images"}, "units='images'"),
    ],
)
def test_options_are_checked(options, message):
    results = results_of(1.0)
    with pytest.raises(ValueError, match=message):
        bootstrap(results, **options)
    with pytest.raises(ValueError, match=message):
        compare(results, results, **options)


@pytest.mark.parametrize("classes", [1, 3, 4, 5])
def test_few_classes_have_no_interval(classes):
    """Of three classes, one sample in nine is a single class."""
    x, labels = data(1.0)
    kept = labels < classes
    y = np.where(np.arange(kept.sum()) < 40, labels[kept], 0)
    first = evaluate_embeddings(x[kept], y)
    second = evaluate_embeddings(x[kept] + 0.1, y)
    interval = bootstrap(first, units="classes", num_resamples=50)["map@r"]
    gain = compare(first, second, units="classes", num_resamples=50)["map@r"]
    few = classes < 5
    assert np.isnan([interval.low, interval.high, gain.low]).all() == few
    assert np.isnan([gain.share_better, gain.p_value]).all() == few
    assert ("[no interval]" in str(interval)) == few
    assert not np.isnan(bootstrap(first)["map@r"].low)
