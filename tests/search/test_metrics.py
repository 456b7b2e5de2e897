"""Metrics of an index, and searches by range, against all scores."""

import numpy as np
import pytest

from keras_dml.search import Index
from keras_dml.search.engine import Similarity

RNG = np.random.default_rng(0)

X = RNG.normal(size=(400, 12)).astype(np.float32) * RNG.uniform(
    0.5, 3, (400, 1)
).astype(np.float32)

QUERIES = RNG.normal(size=(25, 12)).astype(np.float32)

METRICS = ("cosine", "dot", "euclidean")


def scores(metric: str, queries=QUERIES, x=X) -> np.ndarray:
    """All scores in float64, one pair after the other."""
    table = np.empty((len(queries), len(x)))
    for i, a in enumerate(queries.astype(np.float64)):
        for j, b in enumerate(x.astype(np.float64)):
            if metric == "euclidean":
                table[i, j] = -(((a - b) ** 2).sum() ** 0.5)
            else:
                table[i, j] = (a * b).sum()
            if metric == "cosine":
                table[i, j] /= np.linalg.norm(a) * np.linalg.norm(b)
    return table


@pytest.mark.parametrize("metric", METRICS)
def test_exact_search_matches_sorting(metric) -> None:
    index, table = Index(X, metric=metric), scores(metric)
    order = np.argsort(-table, axis=1, kind="stable")[:, :20]
    for queries in (slice(0, 1), slice(0, 25)):  # Without BLAS, and with it.
        hits = index.search(QUERIES[queries], 20)
        assert np.array_equal(hits.ids, order[queries])
        expected = np.take_along_axis(table, order, 1)[queries]
        np.testing.assert_allclose(hits.scores, expected, rtol=1e-6)
        assert hits.scores.dtype == np.float32
        assert hits.metric == index.metric == metric


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
def test_equal_scores_are_in_row_order(metric) -> None:
    """Far from the origin, float32 cannot tell the distances apart."""
    integers = np.random.default_rng(1).integers(-3, 3, (15, 8))
    # More copies than are fetched at first, so that ties are cut off.
    x = np.tile(integers, (80, 1)) + 300.0
    index, table = Index(x, metric=metric), scores(metric, x[:15], x)
    order = np.argsort(-table, axis=1, kind="stable")[:, :30]
    hits = index.search(x[:15], 30)
    assert np.array_equal(hits.ids, order)
    for row in range(15):
        assert np.array_equal(index.search(x[row], 30).ids[0], order[row])


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
def test_dot_and_euclidean_accept_any_length(metric, tmp_path) -> None:
    index = Index([[2, 0], [1, 0], [0, 0]], metric=metric)
    hits = index.search([1, 0], 3)
    expected = {"dot": [[0, 1, 2], [2, 1, 0]],
                "euclidean": [[1, 0, 2], [0, -1, -1]]}  # fmt: skip
    assert [hits.ids[0].tolist(), hits.scores[0].tolist()] == expected[metric]
    assert index.embeddings.tolist() == [[2, 0], [1, 0], [0, 0]]
    index.save(tmp_path / "i")
    again = Index.load(tmp_path / "i")
    assert again.metric == metric
    assert again.search([1, 0], 3).scores.tolist() == hits.scores.tolist()
    index.add([[30, 40]])
    assert index.search([30, 40], 1).ids[0, 0] == 3


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
@pytest.mark.parametrize("scale", [1e-25, 1e17])
def test_tiny_and_huge_numbers_are_told_apart(metric, scale) -> None:
    x = np.float32(scale) * X[:60]
    index = Index(x, metric=metric)
    hits = index.search(np.float32(scale) * QUERIES, 60)
    order = np.argsort(-scores(metric, x=X[:60]), axis=1, kind="stable")
    assert np.array_equal(hits.ids, order)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("factory", ["HNSW8", "IVF8,PQ4x4np"])
def test_approximate_kinds_support_every_metric(factory, metric) -> None:
    parameters = "nprobe=8" if "IVF" in factory else None
    index = Index(X, metric=metric, factory=factory, parameters=parameters)
    approximate_hits = index.search(QUERIES, 10)
    table = scores(metric)
    order = np.argsort(-table, axis=1)[:, :10]
    hits = [
        np.isin(a, b).mean()
        for a, b in zip(order, approximate_hits.ids, strict=True)
    ]
    assert np.mean(hits) > (0.3 if "PQ" in factory else 0.9)
    assert index.recall.at[10] > (0.3 if "PQ" in factory else 0.9)
    true = np.take_along_axis(table, approximate_hits.ids, 1)
    error = np.abs(true - approximate_hits.scores)
    assert error.mean() < np.ptp(table) * (0.2 if "PQ" in factory else 0.01)
    assert (np.diff(approximate_hits.scores) <= 0).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("factory", ["Flat", "IVF8,Flat", "HNSW8"])
def test_range_search_finds_all_rows_above_the_threshold(
    factory, metric
) -> None:
    index = Index(X, {"n": np.arange(400) % 4}, metric=metric, factory=factory)
    table = scores(metric)
    # Away from all scores, as float32 is to be no matter.
    least = float(np.quantile(table, 0.97))
    all_hits = index.range_search(QUERIES, least)
    counts = (table >= least).sum(axis=1)
    assert (all_hits.ids >= 0).sum(axis=1).tolist() == counts.tolist()
    assert all_hits.ids.shape == (25, counts.max())
    for row, hits in enumerate(all_hits):
        ids = [hit.id for hit in hits]
        assert ids == sorted(ids, key=lambda i: (-table[row, i], i))
        assert all(hit.is_match for hit in hits)
    filtered_hits = index.range_search(
        QUERIES, least, where={"n": 1}, exclude=[1] * 25
    )
    kept = (table >= least) & (np.arange(400) % 4 == 1)
    kept[:, 1] = False
    assert (filtered_hits.ids >= 0).sum() == kept.sum()
    assert index.range_search(QUERIES, 1e9).ids.shape == (25, 0)
    assert index.range_search(QUERIES, -1e9).ids.shape == (25, 400)


@pytest.mark.parametrize("factory", ["PQ4x4np", "IVF8,PQ4x4np", "PCA8,Flat"])
def test_range_search_supports_compressed_vectors(factory) -> None:
    parameters = "nprobe=8" if "IVF" in factory else None
    index = Index(X, factory=factory, parameters=parameters)
    ranked = index.search(QUERIES, 400)
    hits = index.range_search(QUERIES, 0.5)
    assert (hits.ids >= 0).sum() == pytest.approx(
        (ranked.scores >= 0.5).sum(), rel=0.01
    )


def test_range_search_includes_scores_equal_to_the_threshold() -> None:
    x = np.tile(X[:4], (50, 1))
    for metric in METRICS:
        index = Index(x, metric=metric)
        for factory in ("Flat", "HNSW8"):
            index = Index(x, metric=metric, factory=factory)
            score = float(index.search(X[0], 1).scores[0, 0])
            # A graph of copies may not lead from one vector's to the next.
            if metric == "dot" or factory != "Flat":
                score = float(index.range_search(X[0], -1e9).scores.max())
            hits = index.range_search(X[0], score)
            assert (hits.ids >= 0).sum() == 50, (metric, factory)


def test_range_search_needs_a_threshold() -> None:
    index = Index(X)
    for threshold in (None, np.nan, "0.5", True, [0.5]):
        with pytest.raises(ValueError, match="must be a score"):
            index.range_search(QUERIES, threshold)
        if threshold is not None:
            with pytest.raises(ValueError, match="must be a score"):
                index.search(QUERIES, threshold=threshold)
    for kind in (index, Index(X, factory="HNSW4")):
        assert kind.range_search(QUERIES[:0], 0.5).ids.shape == (0, 0)
    index.calibrate(X, np.arange(400) // 4, num_resamples=5)
    all_hits = index.range_search(X[:3])
    assert all_hits.threshold == index.threshold.value
    assert [hits[0].id for hits in all_hits] == [0, 1, 2]
    empty = Index(np.empty((0, 3))).range_search([1, 2, 3], 0.5)
    assert (len(empty), empty[0]) == (1, [])


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
def test_scores_of_any_metric_can_be_calibrated(metric, tmp_path) -> None:
    x, labels = X[:60], np.arange(60) // 5
    index = Index(x, metric=metric)
    threshold = index.calibrate(x, labels, "eer", num_resamples=20)
    assert threshold.distance == metric
    # What the index accepts is what the threshold says of its pairs.
    all_hits = index.range_search(x)
    accepted = np.zeros((60, 60), bool)
    for row, hits in enumerate(all_hits):
        accepted[row, [hit.id for hit in hits]] = True
    same = labels[:, None] == labels
    rates = accepted[same & ~np.eye(60, dtype=bool)], accepted[~same]
    assert rates[0].mean() == pytest.approx(threshold.true_positive_rate)
    assert rates[1].mean() == pytest.approx(threshold.false_positive_rate)
    index.save(tmp_path / "index")
    assert Index.load(tmp_path / "index").threshold == threshold


def test_unfit_arguments_raise() -> None:
    with pytest.raises(ValueError, match="`metric` of Index must be one of"):
        Index(X, metric="manhattan")
    with pytest.raises(ValueError, match=r"not be longer than 4.61e\+18"):
        Index(X * 1e19, metric="dot")
    with pytest.raises(ValueError, match="must be finite"):
        Index(X, metric="euclidean").search(np.full(12, np.nan))
    with pytest.raises(ValueError, match="`labels` of Index.calibrate"):
        Index(X).calibrate(X)


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("scale", [0.01, 100])
def test_copies_are_recognized_by_their_scores(metric, scale) -> None:
    """Rounded a little, as by another batch; near ones are no copies."""
    rng = np.random.default_rng(0)
    x = scale * rng.normal(size=(30, 16)).astype(np.float32)
    near = x + 0.02 * scale * rng.normal(size=x.shape)
    index = Index(np.vstack([x, near]), metric=metric)
    queries = x * (1 + 1e-7 * rng.normal(size=x.shape)).astype(np.float32)
    hits = index.search(queries, 60)
    are_copies = Similarity(metric).are_copies(queries, hits.scores)
    assert np.array_equal(are_copies, hits.ids == np.arange(30)[:, None])
