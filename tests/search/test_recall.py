"""The recall of an approximate index holds for the stated queries."""

import numpy as np
import pytest

from keras_dml.embedding import write_shards
from keras_dml.search import Index
from tests.search.test_manifest import forge

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(3000, 16)) + 3).astype(np.float32)
NEW = (RNG.normal(size=(1000, 16)) + 3).astype(np.float32)
OTHER = RNG.normal(size=(200, 16)).astype(np.float32)
METRICS = "dot", "cosine", "euclidean"
GRAPHS = "HNSW6", "HNSW6,SQ8", "HNSW6,SQ8,RFlat", "PCA12,HNSW6"
KINDS = *GRAPHS, "IVF32,Flat", "IVF32,SQ8,RFlat", "SQ4", "PQ8x4"


def recall(index: Index, queries: np.ndarray, k: int = 10) -> float:
    """Recall of `index`, of the rows of `X`, by an exact search in NumPy."""
    x, q = X.astype(np.float64), queries.astype(np.float64)
    if index.metric == "cosine":
        x, q = (y / np.linalg.norm(y, axis=1, keepdims=True) for y in (x, q))
    scores = q @ x.T
    if index.metric == "euclidean":
        scores = 2 * scores - (x * x).sum(axis=1)
    nearest = np.argsort(-scores, axis=1)[:, :k]
    ids = index.search(queries, k).ids
    shares = [np.isin(a, b).mean() for a, b in zip(nearest, ids, strict=True)]
    return float(np.mean(shares))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("factory", KINDS)
def test_recall_holds_for_the_queries_that_are_passed(factory, metric) -> None:
    index = Index(X, metric=metric, factory=factory, queries=OTHER)
    assert index.recall.at[10] == pytest.approx(recall(index, OTHER), abs=1e-3)
    assert index.recall.at[1] == pytest.approx(
        recall(index, OTHER, 1), abs=0.01
    )
    assert (index.recall.queries, index.recall.rows) == (200, 3000)
    assert "200 queries of your own" in str(index.recall)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("factory", GRAPHS)
def test_recall_of_a_graph_holds_for_new_queries(factory, metric) -> None:
    index = Index(X, {"n": np.arange(3000)}, factory=factory, metric=metric)
    said, new = index.recall.at[10], recall(index, NEW)
    assert said == pytest.approx(new, abs=0.03)
    assert (index.recall.queries, index.recall.rows) == (300, 2700)
    assert "300 rows of the gallery, searched for before" in str(index.recall)
    # Rows that were left out stand at their places.
    if metric == "euclidean" and not factory.startswith("PCA"):
        near = index.search(X, 1).ids[:, 0]
        assert (near == np.arange(3000)).mean() > 0.9


@pytest.mark.parametrize("metric", METRICS)
def test_rows_of_a_graph_are_easier_to_find_than_new_queries(metric) -> None:
    """The recall of rows used to be stated: .9, where new queries had .7."""
    x, new = np.split(RNG.normal(size=(4000, 64)), [3000])
    exact = Index(x, metric=metric)
    index = Index(x, metric=metric, factory="HNSW16", parameters="efSearch=20")

    def shares(queries: np.ndarray, own_ids: np.ndarray | None) -> float:
        hits = [
            y.search(queries, 10, exclude=own_ids).ids for y in (exact, index)
        ]
        return np.mean([np.isin(*x).mean() for x in zip(*hits, strict=True)])

    expected = shares(new, None)
    assert shares(x, index.ids) > expected + 0.1
    assert index.recall.at[10] == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("factory", ["HNSW16", "HNSW16,SQ8,RFlat"])
def test_rows_left_out_for_recall_change_like_others(factory, tmp_path) -> None:
    columns = {"n": np.arange(500)}
    keys = [f"row {i}" for i in range(500)]
    index = Index(X[:500], columns, keys=keys, metric="euclidean",
                  factory=factory, parameters="efSearch=500" if "," not in
                  factory else None)  # fmt: skip
    index.remove(keys[:200])
    index.add(NEW[:10], {"n": np.arange(500, 510)}, keys=list("abcdefghij"))
    index.save(tmp_path / "index")
    for each in (index, Index.load(tmp_path / "index")):
        assert each.recall == index.recall
        hits = each.search(np.concatenate([X[200:500], NEW[:10]]), 1)
        rows = [row[0].row["n"] for row in hits]
        assert rows == [*range(200, 510)]
    with pytest.raises(KeyError):
        index.row(3)


@pytest.mark.parametrize("queries", [None, OTHER])
def test_recall_of_shards_equals_that_of_the_array(queries, tmp_path) -> None:
    pytest.importorskip("pyarrow")
    shards = write_shards(X, tmp_path / "x", rows_per_shard=700, progress=False)
    index = Index(shards, factory="HNSW8", metric="dot", queries=queries)
    plain = Index(X, factory="HNSW8", metric="dot", queries=queries)
    assert index.recall.at[10] == pytest.approx(plain.recall.at[10], abs=0.03)
    assert index.recall.source == plain.recall.source
    assert recall(index, NEW) == pytest.approx(recall(plain, NEW), abs=0.03)


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 30])
@pytest.mark.parametrize("factory", ["HNSW8", "SQ8"])
def test_recall_of_few_rows_counts_existing_neighbors(factory, count) -> None:
    index = Index(X[:count].reshape(count, 16), factory=factory)
    assert len(index) == count
    if count < 2:
        assert index.recall is None
        return
    num_neighbors = count - (count // 10 if factory == "HNSW8" else 1)
    num_neighbors -= count < 10 and factory == "HNSW8"
    assert max(index.recall.at) == min(10, num_neighbors)
    assert index.search(X[:count], 1).ids.ravel().tolist() == [*range(count)]


def test_queries_must_be_embeddings_like_those_of_the_gallery() -> None:
    for queries, message in (
        (OTHER[:, :5], r"`queries` of Index must be embeddings, \(N, 16\)"),
        (np.empty((0, 16)), "`queries` of Index must have at least one row"),
        (np.full((1, 16), np.nan), "`queries` of Index"),
        (["a.jpg"], "Index"),
    ):
        with pytest.raises(ValueError, match=message):
            Index(X, factory="HNSW8", queries=queries)
    assert Index(X, queries=OTHER).recall is None
    with pytest.raises(ValueError, match="`embeddings` of Index must be"):
        Index([[1, 2], [3]], queries=OTHER[:, :2])


def test_recall_of_an_older_index_names_its_rows(
    tmp_path,
) -> None:
    Index(X, factory="HNSW8").save(tmp_path / "i")
    forge(
        tmp_path / "i", lambda plain: plain["content"]["recall"].pop("source")
    )
    assert "each searched for among" in str(Index.load(tmp_path / "i").recall)
