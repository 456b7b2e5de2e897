"""Scans of some vectors of a faiss index, against NumPy."""

import faiss
import numpy as np
import pytest

from keras_dml.search import scans

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
