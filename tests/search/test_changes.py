"""Indexes that change after they were loaded or copied."""

import copy
import gc
import pickle

import faiss
import numpy as np
import pytest

from keras_dml.search import Index

X = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)


@pytest.fixture(autouse=True)
def one_thread():
    """Several link the vectors of HNSW in the order they come to them."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)


@pytest.mark.parametrize(
    ("factory", "parameters"),
    [("Flat", None), ("IVF4,PQ4x4np", "nprobe=3"), ("HNSW8", "efSearch=500")],
)
@pytest.mark.parametrize("change", ["add", "remove"])
def test_loaded_index_changes_like_the_original(
    factory, parameters, change, tmp_path
) -> None:
    built = Index(X, factory=factory, parameters=parameters)
    built.save(tmp_path / "i")
    loaded = Index.load(tmp_path / "i")
    for index in (built, loaded):
        if change == "add":
            index.add(X[::100])
        else:
            index.remove(np.arange(0, 1000, 7))
        index.add(X[:2])
    hits, again = built.search(X[:100], 5), loaded.search(X[:100], 5)
    assert np.array_equal(hits.ids, again.ids)
    # Graphs differ in how many vectors are compared at a time.
    np.testing.assert_allclose(hits.scores, again.scores, rtol=1e-6)
    loaded.save(tmp_path / "i")
    again = Index.load(tmp_path / "i").search(X[:100], 5)
    assert np.array_equal(hits.ids, again.ids)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_index_of_few_rows_with_large_tables_loads(metric, tmp_path) -> None:
    """What a product quantizer computes for its lists outgrows the file."""
    index = Index(X[:600], factory="IVF8,PQ8x6np", metric=metric)
    index.remove(np.arange(2, 600))
    index.save(tmp_path / "i")
    loaded, hits = Index.load(tmp_path / "i"), index.search(X[:20])
    again = loaded.search(X[:20])
    assert np.array_equal(hits.ids, again.ids)
    assert np.array_equal(hits.scores, again.scores)
    loaded.remove([0, 1])
    loaded.save(tmp_path / "i")
    emptied = Index.load(tmp_path / "i")
    assert (len(emptied), emptied.search(X[0])[0]) == (0, [])
    emptied.add(X[:2])
    assert emptied.search(X[1], 1).ids[0, 0] == 601


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copy_outlives_its_original(copied, tmp_path) -> None:
    original = Index(X)
    ids = original.search(X[:100], 5).ids
    other = copied(original)
    original._engine.vectors[:] = 0
    del original
    gc.collect()
    assert np.array_equal(other.search(X[:100], 5).ids, ids)
    other.add(X[:1])
    assert len(other) == 1001
