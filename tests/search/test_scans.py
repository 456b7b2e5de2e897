"""Scans of some vectors of a faiss index, against NumPy."""

import faiss
import numpy as np
import pytest

from keras_dml.search import Index, scans

RNG = np.random.default_rng(0)
X = RNG.normal(size=(70_000, 6)).astype("float32")


@pytest.mark.parametrize("share", [0.002, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("queries", [1, 3, 12])
@pytest.mark.parametrize("kind", [faiss.IndexFlatIP, faiss.IndexFlatL2])
def test_scan_finds_the_nearest_of_the_labels(kind, queries, share) -> None:
    index = kind(6)
    index.add(X)
    labels = np.flatnonzero(RNG.uniform(size=len(X)) < share)
    q = RNG.normal(size=(queries, 6)).astype("float32")
    scores, hits = scans.nearest(index, q, 20, labels)
    expected = q @ X[labels].T
    if kind is faiss.IndexFlatL2:
        expected = -np.square(q[:, None] - X[labels]).sum(axis=2)
        scores = -scores
    order = np.argsort(-expected, axis=1)[:, :20]
    np.testing.assert_array_equal(hits, labels[order])
    best = np.take_along_axis(expected, order, axis=1)
    np.testing.assert_allclose(scores, best, rtol=1e-4, atol=1e-5)


def test_scan_of_fewer_labels_than_k_returns_them_all():
    index = faiss.IndexFlatIP(6)
    index.add(X[:40])
    labels = np.arange(0, 40, 2)
    _, hits = scans.nearest(index, X[:1], 20, labels)
    assert sorted(hits[0]) == labels.tolist()


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_a_batch_finds_what_its_queries_find_alone(metric) -> None:
    """As NumPy does in float64; equal scores come in the order of the rows."""
    x = RNG.normal(size=(300, 24)).astype("float32")
    x[200:] = x[:100]
    queries = np.vstack([x[:32], RNG.normal(size=(32, 24))]).astype("float32")
    index = Index(x, metric=metric)
    batch = index.search(queries, 20)
    alone = [index.search(query, 20) for query in queries]
    np.testing.assert_array_equal(batch.ids, np.vstack([y.ids for y in alone]))
    np.testing.assert_array_equal(
        batch.scores, np.vstack([y.scores for y in alone])
    )
    a, b = queries[:, None].astype(float), x.astype(float)
    if metric == "cosine":
        a, b = (y / np.sqrt((y**2).sum(-1, keepdims=True)) for y in (a, b))
    expected = {
        "cosine": lambda: (a * b).sum(axis=2),
        "dot": lambda: (a * b).sum(axis=2),
        "euclidean": lambda: -np.sqrt(((a - b) ** 2).sum(axis=2)),
    }[metric]()
    order = np.argsort(-expected, axis=1, kind="stable")[:, :20]
    np.testing.assert_array_equal(batch.ids, order)
    best = np.take_along_axis(expected, order, axis=1)
    np.testing.assert_allclose(batch.scores, best, rtol=1e-6, atol=1e-7)
    is_tie = best[:, :-1] == best[:, 1:]
    assert is_tie.sum() > 64


@pytest.mark.skipif(
    not hasattr(faiss.cvar, "distance_compute_blas_threshold"),
    reason="faiss before 1.15 counts queries",
)
@pytest.mark.parametrize(
    "search",
    [
        lambda x: scans.run_search(index_of(x), x[:64], 3),
        lambda x: scans.nearest_of_parts([(x, np.arange(len(x)))], x[:64], 3,
                                         faiss.METRIC_L2),
        lambda x: Index(x).search(x[:64], 3),
    ],
    ids=["index", "parts", "Index"],
)  # fmt: skip
def test_matrices_are_multiplied_from_four_queries_per_thread_on(search):
    before = faiss.cvar.distance_compute_blas_threshold
    try:
        faiss.cvar.distance_compute_blas_threshold = 128_000
        search(X[:100])
        limit = faiss.cvar.distance_compute_blas_threshold
        assert limit == 4 * 6 * faiss.omp_get_max_threads()
    finally:
        faiss.cvar.distance_compute_blas_threshold = before


def index_of(x: np.ndarray) -> faiss.Index:
    index = faiss.IndexFlatL2(x.shape[1])
    index.add(x)
    return index
