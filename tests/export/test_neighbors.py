"""Tests of the search in the graph against searches outside of it."""

import numpy as np
import tensorflow as tf

from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.export import neighbors
from keras_dml.export.neighbors import Neighbors


def searcher(gallery):
    return tf.function(
        Neighbors(gallery).__call__,
        input_signature=[
            tf.TensorSpec((None, gallery.shape[1]), "float32"),
            tf.TensorSpec((), "int32"),
        ],
        autograph=False,
    )


def search(queries, gallery, k):
    return [x.numpy() for x in searcher(gallery)(queries, k)]


def exact_order(queries, gallery):
    """Rows of the gallery by the scores that decide the evaluator's ranks."""
    scores = Scores(queries, gallery, "cosine")
    rows = np.arange(len(gallery))
    exact = [
        scores.exact(np.full(len(gallery), i), rows)
        for i in range(len(queries))
    ]
    return np.argsort(-np.stack(exact), axis=1, kind="stable")


def cosines_of(queries, gallery):
    x, y = queries.astype("float64"), gallery.astype("float64")
    norms = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))
    return np.divide(x @ y.T, norms, out=np.zeros_like(norms), where=norms > 0)


def assert_exact(queries, gallery, *ks):
    """Returns the cosines that were found for the last k."""
    find, order = searcher(gallery), exact_order(queries, gallery)
    for k in ks:
        rows, cosines = (x.numpy() for x in find(queries, k))
        np.testing.assert_array_equal(rows, order[:, :k])
        found = np.take_along_axis(cosines_of(queries, gallery), rows, 1)
        np.testing.assert_allclose(cosines, found, rtol=0, atol=1e-7)
    return cosines


def random_rows(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_random_embeddings() -> None:
    assert_exact(random_rows(20, 16), random_rows(300, 16, seed=1), 1, 7, 300)


def test_equal_rows_are_found_in_their_order() -> None:
    rng = np.random.default_rng(0)
    gallery = random_rows(6, 33)[rng.integers(6, size=500)]
    queries = np.concatenate([gallery[:6], random_rows(5, 33, seed=2)])
    cosines = assert_exact(queries, gallery, 60)
    # Or else there was no tie to be broken.
    assert (np.diff(cosines, axis=1) == 0).mean() > 0.8


def test_collapsed_embeddings_are_told_apart() -> None:
    center = random_rows(1, 64)
    gallery = center + 1e-5 * random_rows(400, 64, seed=1)
    queries = center + 1e-5 * random_rows(9, 64, seed=2)
    cosines = queries @ gallery.T
    cosines /= np.linalg.norm(queries, axis=1)[:, None]
    cosines /= np.linalg.norm(gallery, axis=1)
    assert len(np.unique(cosines)) < 50  # float32 cannot.
    assert_exact(queries, gallery, 20)


def test_rows_of_any_length() -> None:
    scale = 10.0 ** np.random.default_rng(0).uniform(-18, 18, (200, 1))
    gallery = (random_rows(200, 12) * scale).astype("float32")
    assert_exact(random_rows(10, 12, seed=1) * 1e-9, gallery, 50)


def test_zeros_have_a_cosine_of_zero() -> None:
    gallery = random_rows(30, 5)
    gallery[[4, 20]] = 0
    queries = np.concatenate([np.zeros((1, 5), "float32"), gallery[:2]])
    assert_exact(queries, gallery, 30)


def test_many_queries_and_pairs_go_in_parts(monkeypatch) -> None:
    queries, gallery = random_rows(23, 8), random_rows(90, 8, seed=1)
    whole = search(queries, gallery, 9)
    monkeypatch.setattr(neighbors, "MOST_SCORES", 500)
    monkeypatch.setattr(neighbors, "MOST_PAIRS", 13)
    for given, expected in zip(search(queries, gallery, 9), whole, strict=True):
        np.testing.assert_array_equal(given, expected)


def test_no_queries() -> None:
    rows, cosines = search(np.zeros((0, 8), "float32"), random_rows(9, 8), 4)
    assert rows.shape == cosines.shape == (0, 4)
    assert (rows.dtype, cosines.dtype) == (np.int64, np.float32)


def test_all_is_computed_on_the_cpu() -> None:
    # The error bound of the search is not that of a GPU's arithmetic.
    find = Neighbors(random_rows(9, 8))
    function = tf.function(find.__call__, autograph=False)
    graph = function.get_concrete_function(
        tf.TensorSpec((None, 8), "float32"), 4
    ).graph.as_graph_def()
    nodes = [x for f in graph.library.function for x in f.node_def]
    products = [x for x in [*nodes, *graph.node] if x.op == "MatMul"]
    assert products
    assert all("CPU:0" in x.device for x in products)
