"""faiss indexes in memory of NumPy's, beside those that faiss makes."""

import copy
import gc
import pickle

import faiss
import numpy as np
import pytest

from keras_dml.search import Index
from keras_dml.search.memory import flat_room, index_in, own_index, room

KINDS = ["Flat", "SQ8", "IVF4,PQ4", "HNSW8", "PCA8,IVF4,Flat"]

X = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)


@pytest.fixture(autouse=True)
def one_thread():
    """Several link the vectors of HNSW in the order they come to them."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)


def made(factory: str):
    index = faiss.index_factory(16, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(X)
    index.add(X)
    return index


def in_room(index) -> np.ndarray:
    written = faiss.serialize_index(index)
    memory = room(len(written))
    memory[:] = written
    return memory


def same(a, b, queries=X[:100]) -> bool:
    pairs = zip(a.search(queries, 5), b.search(queries, 5), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_an_exact_index_is_what_faiss_writes(count) -> None:
    memory, vectors = flat_room(count, 16)
    vectors[:] = X[:count]
    theirs = faiss.IndexFlatIP(16)
    theirs.add(X[:count])
    assert np.array_equal(memory, faiss.serialize_index(theirs))
    index = index_in(memory)
    assert index.ntotal == count
    if count:
        assert same(index, theirs)
        assert vectors.ctypes.data % 64 == 32
        kept = faiss.rev_swig_ptr(index.get_xb(), 16 * count)
        assert np.shares_memory(kept, vectors)


@pytest.mark.parametrize("factory", KINDS)
def test_every_kind_finds_the_same(factory) -> None:
    theirs = made(factory)
    memory = in_room(theirs)
    index = index_in(memory)
    del memory
    gc.collect()
    assert same(index, theirs)


@pytest.mark.parametrize("factory", KINDS)
def test_an_own_index_can_change(factory) -> None:
    theirs = made(factory)
    memory = in_room(theirs)
    index = own_index(memory)
    memory[:] = 255
    index.add(X[:3])
    theirs.add(X[:3])
    assert index.ntotal == 1003
    assert same(index, theirs)


@pytest.mark.parametrize(
    ("factory", "parameters"),
    [("Flat", None), ("IVF4,PQ4", "nprobe=3"), ("HNSW8", "efSearch=500")],
)
@pytest.mark.parametrize("change", ["add", "remove"])
def test_a_loaded_index_changes_as_a_built_one(
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
    found, again = built.search(X[:100], 5), loaded.search(X[:100], 5)
    assert np.array_equal(found.ids, again.ids)
    # Graphs differ in how many vectors are compared at a time.
    np.testing.assert_allclose(found.scores, again.scores, rtol=1e-6)
    loaded.save(tmp_path / "i")
    again = Index.load(tmp_path / "i").search(X[:100], 5)
    assert np.array_equal(found.ids, again.ids)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_copy_outlives_its_original(copied, tmp_path) -> None:
    original = Index(X)
    found = original.search(X[:100], 5).ids
    other = copied(original)
    original._indexed.engine.vectors[:] = 0
    del original
    gc.collect()
    assert np.array_equal(other.search(X[:100], 5).ids, found)
    other.add(X[:1])
    assert len(other) == 1001
