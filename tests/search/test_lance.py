"""LanceIndex on a real LanceDB, against NumPy and against an Index."""

import numpy as np
import pytest

from keras_dml import backbones, methods
from keras_dml.search import Index, LanceIndex

lancedb = pytest.importorskip("lancedb")
pytestmark = pytest.mark.engines

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 8)).astype("float32")
PRICE = RNG.uniform(size=200)
COLUMNS = {"price": PRICE, "name": [f"it's {i % 3}" for i in range(200)]}
KEYS = [f"k{i}" for i in range(200)]


def scores_of(metric, queries):
    if metric == "euclidean":
        return -np.linalg.norm(queries[:, None] - X, axis=2)
    if metric == "cosine":
        unit = X / np.linalg.norm(X, axis=1, keepdims=True)
        return queries @ unit.T / np.linalg.norm(queries, axis=1)[:, None]
    return queries @ X.T


def gallery(folder, metric="dot"):
    rows = Index(X, COLUMNS, keys=KEYS, metric="dot").table()
    return LanceIndex.build(rows, folder, metric=metric)


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_search_returns_the_nearest_rows_of_numpy(tmp_path, metric):
    queries = RNG.normal(size=(3, 8)).astype("float32")
    index = gallery(tmp_path, metric)
    hits = LanceIndex.open(tmp_path).search(queries, 5)
    expected = scores_of(metric, queries)
    for query, row in enumerate(np.argsort(-expected)[:, :5]):
        assert [hit.key for hit in hits[query]] == [f"k{i}" for i in row]
        scores = [hit.score for hit in hits[query]]
        np.testing.assert_allclose(scores, expected[query, row], rtol=1e-5)
        assert hits[query][0].row["price"] == PRICE[row[0]]
    assert len(index) == 200


def test_search_with_a_condition_is_exact_among_the_rows_that_pass(tmp_path):
    query = X[:1]
    [hits] = gallery(tmp_path).search(query, 7, where="name = 'it''s 1'")
    passing = np.flatnonzero(np.arange(200) % 3 == 1)
    order = np.argsort(-(X[passing] @ query[0]))[:7]
    assert [hit.key for hit in hits] == [f"k{i}" for i in passing[order]]


def test_add_replaces_rows_whose_keys_exist_and_remove_deletes(tmp_path):
    index = gallery(tmp_path)
    rows = Index(
        -X[:2], {"price": [7.0, 8.0], "name": ["a", "b"]},
        keys=["k0", "new"], metric="dot",
    ).table()  # fmt: skip
    index.add(rows)
    assert len(index) == 201
    [[best]] = index.search(-X[0], 1, where="price = 7")
    assert (best.key, best.row["name"]) == ("k0", "a")
    index.remove("price > 1")
    assert len(index) == 199


def test_model_searches_by_image_and_another_model_raises(tmp_path):
    network = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    model = methods.baseline(network, embedding_dim=8)
    images = RNG.integers(256, size=(9, 16, 16), dtype="uint8")
    rows = Index.build(model, images).table()
    LanceIndex.build(rows, tmp_path, model=model)
    index = LanceIndex.open(tmp_path, model=model)
    hits = index.search(images, 1)
    assert [first_hits[0].key for first_hits in hits] == list(range(9))
    other = methods.baseline(network, embedding_dim=8)
    with pytest.raises(ValueError, match="`model` .* must be the one"):
        LanceIndex.open(tmp_path, model=other)


def test_bad_input_raises_errors_that_name_the_way_out(tmp_path):
    with pytest.raises(ValueError, match=r"`rows` .* Use Index.table\(\)"):
        LanceIndex.build(X, tmp_path)
    index = gallery(tmp_path)
    for queries in (X[:, :4], np.full((1, 8), np.nan)):
        with pytest.raises(ValueError, match=r"finite embeddings, \(Q, 8\)"):
            index.search(queries)
    table = lancedb.connect(tmp_path).create_table("own", [{"vector": [0.0]}])
    with pytest.raises(ValueError, match="LanceIndex.build has made.*'own'"):
        LanceIndex(table)
