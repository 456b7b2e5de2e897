"""The registry of metrics, and metrics of users' own."""

import numpy as np
import pytest

from keras_dml.evaluation import (
    METRICS,
    Limits,
    Ranks,
    bootstrap,
    evaluate_embeddings,
)
from keras_dml.evaluation.metrics import metric
from keras_dml.evaluation.ranks.ranked_positives import UNLIMITED


@pytest.fixture
def register(monkeypatch):
    """Registers metrics until the end of the test."""
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    return METRICS.register


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 9, 80)
    return rng.normal(size=(9, 5))[labels] + rng.normal(size=(80, 5)), labels


def precision(ranks: Ranks, k: int) -> np.ndarray:
    return ranks.sum(ranks.ranks <= k) / k


@pytest.mark.parametrize("options", [{}, {"limits": lambda k: Limits(every=k)}])
def test_an_own_metric_at_k(register, options) -> None:
    register("my_precision@k", "hits among k", **options)(precision)
    x, labels = data()
    results = evaluate_embeddings(
        x, labels, metrics=["my_precision@5", "my_precision@k"], ks=(1, 5)
    )
    assert list(results) == ["my_precision@5", "my_precision@1"]
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    scores = unit @ unit.T - 2 * np.eye(80)
    nearest = np.argsort(-scores, axis=1)[:, :5]
    expected = (labels[nearest] == labels[:, None]).mean(axis=1)
    np.testing.assert_allclose(results.per_query["my_precision@5"], expected)
    assert "my_precision@5" in bootstrap(results)


def test_own_metrics_of_clusters_and_of_embeddings(register) -> None:
    @register("purity", "share of the largest class", of="clusters")
    def purity(labels, clusters):
        return (labels >= 0).mean() + len(np.unique(clusters))

    @register("norm", "mean length", of="embeddings")
    def norm(embeddings, labels):
        return np.linalg.norm(embeddings, axis=1).mean()

    x, labels = data()
    results = evaluate_embeddings(
        x, labels, metrics=("purity", "norm"), seeds=(0, 1)
    )
    assert results["purity"] == 10.0
    assert results.per_seed["purity"].shape == (2,)
    assert results["norm"] == pytest.approx(1.0)


def test_limits_by_default_are_none(register) -> None:
    register("my_precision@k", "hits among k")(precision)
    assert metric("my_precision@3").limits == Limits(every=UNLIMITED)
    assert metric("recall@3").limits == Limits(first=3)
    assert metric("map@r").limits == Limits(extra=0)


def test_definitions_have_the_number() -> None:
    assert metric("recall@12").definition.endswith("the 12 nearest")


def test_a_metric_must_give_a_value_for_each_query(register) -> None:
    register("mean_rank", "mean of all ranks")(lambda ranks: ranks.ranks)
    with pytest.raises(ValueError, match="'mean_rank' must return one value"):
        evaluate_embeddings(*data(), metrics="mean_rank")


@pytest.mark.parametrize("options", [{"of": "rank"}, {"limit": Limits()}])
def test_details_are_checked(register, options) -> None:
    with pytest.raises(ValueError, match="must be given `of`, one of"):
        register("x", "y", **options)


def test_names_are_taken_once(register) -> None:
    with pytest.raises(ValueError, match="'map@r' is registered already"):
        register("map@r", "mine")(precision)


@pytest.mark.parametrize(
    "name", ["recall", "recall@0", "recall@-1", "recall@k", "map@r2", "x@1"]
)
def test_what_is_no_metric(name) -> None:
    assert metric(name) is None


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_has_a_value(name) -> None:
    x, labels = data()
    results = evaluate_embeddings(x, labels, metrics=[name], ks=(2,))
    assert len(results) == 1
    assert np.isfinite(list(results.values())).all()
