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
from keras_dml.evaluation.metrics import parse_metric


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
def test_custom_metric_at_k_matches_a_naive_one(register, options) -> None:
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


def test_custom_metrics_of_clusters_and_embeddings_are_computed(
    register,
) -> None:
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


def test_metric_must_return_a_value_for_each_query(register) -> None:
    register("mean_rank", "mean of all ranks")(lambda ranks: ranks.ranks)
    with pytest.raises(ValueError, match="'mean_rank' must return one value"):
        evaluate_embeddings(*data(), metrics="mean_rank")


@pytest.mark.parametrize("options", [{"of": "rank"}, {"limit": Limits()}])
def test_unfit_details_of_a_metric_raise(register, options) -> None:
    with pytest.raises(ValueError, match="must be given `of`, one of"):
        register("x", "y", **options)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_has_a_value(name) -> None:
    x, labels = data()
    if name.endswith(("@x", "=x")):
        name = name[:-1] + "0.1"
    results = evaluate_embeddings(x, labels, metrics=[name], ks=(2,))
    assert len(results) == 1
    assert np.isfinite(list(results.values())).all()


# Functions that are not registered.


def test_function_may_be_a_metric() -> None:
    def all_found(ranks):
        """Rank of the farthest hit, at best 1."""
        assert ranks.labels.shape == ranks.counts.shape
        assert (ranks.gains == 1).all()
        return ranks.counts / ranks.ranks[ranks.starts + ranks.counts - 1]

    results = evaluate_embeddings(*data(), metrics=["minp", all_found])
    assert list(results) == ["minp", "all_found"]
    assert results["all_found"] == results["minp"]
    assert bootstrap(results)["all_found"] == bootstrap(results)["minp"]
    alone = evaluate_embeddings(*data(), metrics=all_found)
    assert dict(alone) == {"all_found": results["minp"]}


def test_object_may_be_a_metric_with_name_kind_and_limits() -> None:
    class Within:
        def __init__(self, k):
            self.name, self.limits, self.k = f"within {k}", Limits(every=k), k

        def __call__(self, ranks):
            return ranks.sum(ranks.ranks <= self.k) / self.k

    class Length:
        name, of = "length", "embeddings"

        def __call__(self, embeddings, labels):
            return np.linalg.norm(embeddings, axis=1).mean()

    results = evaluate_embeddings(
        *data(), metrics=[Within(3), "precision@3", Length()]
    )
    assert results["within 3"] == results["precision@3"]
    assert results["length"] == pytest.approx(1)


@pytest.mark.parametrize("name", ["map@r", "<lambda>", "macro/recall@4", 3])
def test_metric_functions_need_distinct_names(name) -> None:
    def function(ranks):
        return ranks.counts

    function.name = name
    with pytest.raises(ValueError, match="must have distinct names"):
        evaluate_embeddings(*data(), metrics=[function])


def test_metric_must_not_return_nan() -> None:
    def unknown(ranks):
        return ranks.counts * np.nan

    with pytest.raises(ValueError, match="'unknown' must return a number"):
        evaluate_embeddings(*data(), metrics=[unknown])


def test_metric_is_imported_from_a_module(
    tmp_path, monkeypatch, register
) -> None:
    (tmp_path / "some_metrics.py").write_text(
        "from keras_dml.evaluation import METRICS\n"
        "@METRICS.register('certain@k', 'always k')\n"
        "def certain(ranks, k): return ranks.counts * 0 + k\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    results = evaluate_embeddings(*data(), metrics="some_metrics:certain@3")
    assert dict(results) == {"certain@3": 3.0}
    with pytest.raises(ValueError, match="module 'no_such_metrics'"):
        evaluate_embeddings(*data(), metrics="no_such_metrics:certain@3")


# Means over classes.


def test_macro_averages_class_means() -> None:
    x, labels = data()
    results = evaluate_embeddings(
        x, labels, metrics=("macro/map@r", "map@r", "macro/recall@k"), ks=(1, 2)
    )
    assert list(results) == [
        "macro/map@r",
        "map@r",
        "macro/recall@1",
        "macro/recall@2",
    ]
    means = {
        label: results.per_query["map@r"][results.query_labels == label].mean()
        for label in np.unique(labels).tolist()
    }
    assert results.per_class("map@r") == pytest.approx(means)
    assert results["macro/map@r"] == pytest.approx(
        np.mean(list(means.values()))
    )
    assert results["macro/map@r"] != pytest.approx(results["map@r"], abs=1e-4)
    assert parse_metric("macro/map@r").definition.startswith(
        "mean over classes: "
    )


def test_intervals_of_macro_resample_class_means() -> None:
    x, labels = data()
    results = evaluate_embeddings(x, labels, metrics=("macro/map@r", "map@r"))
    intervals = bootstrap(results, units="classes", num_resamples=500)
    means = np.array(list(results.per_class("map@r").values()))
    drawn = np.random.default_rng(0).integers(0, 9, (500, 9))
    low, high = np.quantile(means[drawn].mean(axis=1), [0.025, 0.975])
    assert intervals["macro/map@r"].estimate == pytest.approx(means.mean())
    assert intervals["macro/map@r"].low == pytest.approx(low)
    assert intervals["macro/map@r"].high == pytest.approx(high)
