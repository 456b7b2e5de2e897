"""The index over embeddings, against sorting all scores."""

import os
import signal

import faiss
import numpy as np
import pytest

from keras_dml.evaluation.clustering import kmeans
from keras_dml.search import Index
from tests.forks import exit_status, forked


def gallery(count: int = 300, dim: int = 12, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dim))


def units(x: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(x.astype(np.float32).astype(float), axis=1)
    x32 = x.astype(np.float32).astype(float) / norms[:, None]
    return x32.astype(np.float32)


def sorted_all(x, queries, k) -> tuple[np.ndarray, np.ndarray]:
    """Ids and scores, by sorting float64 scores; ties by row."""
    scores = units(queries).astype(float) @ units(x).astype(float).T
    order = np.argsort(-scores.round(12), axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, 1)


def test_equal_scores_are_in_row_order() -> None:
    # More copies than are fetched at first, so that ties are cut off.
    x = np.concatenate([np.tile(gallery(5), (80, 1)), gallery(50, seed=2)])
    queries = np.concatenate([gallery(5), gallery(3, seed=4)])
    hits = Index(x).search(queries, 30)
    ids, _ = sorted_all(x, queries, 30)
    assert np.array_equal(hits.ids, ids)
    assert hits.ids[1].tolist() == list(range(1, 150, 5))


def test_order_is_exact_where_float32_cannot_tell() -> None:
    x = gallery(1, 64) + 1e-7 * gallery(500, 64)
    hits = Index(x).search(x[:20], 5)
    stored = Index(x).embeddings.astype(float)
    order = np.argsort(-(stored[:20] @ stored.T), axis=1, kind="stable")
    assert np.array_equal(hits.ids, order[:, :5])


def test_results_do_not_depend_on_batches() -> None:
    index, queries = Index(gallery(2000, 64)), gallery(60, 64, seed=1)
    together = index.search(queries, 20)
    for i, query in enumerate(queries):
        alone = index.search(query, 20)
        assert np.array_equal(alone.ids[0], together.ids[i])
        assert np.array_equal(alone.scores[0], together.scores[i])


def test_missing_hits_are_padded_in_small_and_empty_indexes() -> None:
    index = Index(gallery(4))
    all_hits = index.search(gallery(2, seed=1), 9)
    assert all_hits.ids.shape == (2, 9)
    assert (all_hits.ids[:, 4:] == -1).all()
    assert np.isneginf(all_hits.scores[:, 4:]).all()
    assert [len(hits) for hits in all_hits] == [4, 4]
    empty = Index(np.empty((0, 12)))
    assert len(empty) == 0
    assert empty.search(gallery(1), 3)[0] == []
    assert empty.search(gallery(2), 3, threshold=0.5).matches == [None, None]
    ids = empty.add(gallery(2))
    assert empty.search(gallery(1), 1).ids[0, 0] == ids[0]


def test_ids_are_never_reused() -> None:
    x = gallery(40)
    index = Index(x, {"name": [f"n{i}" for i in range(40)]})
    index.remove([39, 3, 10])
    assert index.add(gallery(2, seed=5), {"name": ["a", "b"]}).tolist() == [
        40,
        41,
    ]
    left = [i for i in range(42) if i not in (39, 3, 10)]
    assert index.ids.tolist() == left
    everything = np.concatenate([x, gallery(2, seed=5)])
    for row in left:
        hit = index.search(everything[row], 1)[0][0]
        assert hit.id == row
        assert hit.score == pytest.approx(1)
        names = {40: "a", 41: "b"}
        assert hit.row == {"name": names.get(row, f"n{row}")}
    assert 3 not in index.search(x[3], 39).ids
    with pytest.raises(KeyError, match="3"):
        index.remove([5, 3])
    assert len(index) == 39
    with pytest.raises(KeyError):
        index.row(3)


def test_exclude_leaves_out_one_row_for_each_query() -> None:
    x = gallery(60)
    index = Index(x)
    hits = index.search(x, 7, exclude=index.ids)
    expected = sorted_all(x, x, 8)[0][:, 1:]
    assert np.array_equal(hits.ids, expected)
    # An id that is not found takes no one's place.
    other = index.search(x[:1], 7, exclude=[59 if 59 not in expected else 58])
    assert len(other[0]) == 7


def test_threshold_decides_matches() -> None:
    x = np.eye(3)
    index = Index(x, {"name": ["a", "b", "c"]})
    hits = index.search([[1, 0.2, 0], [1, 1, 1]], 2, threshold=0.9)
    near, far = hits.matches
    assert near.row["name"] == "a"
    assert far is None
    assert [hit.is_match for hit in hits[0]] == [True, False]
    plain = index.search([1, 0, 0])
    assert plain[0][0].is_match is None
    with pytest.raises(ValueError, match="requires a threshold"):
        _ = plain.matches
    labels = [0, 0, 1, 1]
    pictures = [[1, 0, 0], [1, 0.1, 0], [0, 0, 1], [0, 0.1, 1]]
    index.calibrate(pictures, labels, "eer")
    assert index.search([1, 0, 0]).threshold == index.threshold.value


@pytest.mark.parametrize("wide", [10**400, 2**64, -(2**63) - 1, [2**64]])
def test_integers_beyond_64_bits_raise(tmp_path, wide) -> None:
    index = Index(gallery(3), {"size": [2**64 - 1, -(2**63), None]})
    refused = "integers of up to 64 bits.*in row 1 of the column 'size'"
    for values in ([1, wide], [None, wide], [0.5, wide]):
        with pytest.raises(ValueError, match=refused):
            Index(gallery(2), {"size": values})
        with pytest.raises(ValueError, match=refused):
            index.add(gallery(2), {"size": values})
    assert len(index) == 3
    index.save(tmp_path / "index")
    assert Index.load(tmp_path / "index").columns == index.columns


# Without "np", faiss orders the codes of PQ for seconds.
KINDS = ["IVF8,Flat", "HNSW16", "SQ8", "PCA6,IVF4,Flat",
         "IVF8,PQ4x4np,RFlat", "PQ4x4np"]  # fmt: skip


@pytest.fixture(params=[False, True], ids=["", "torch"])
def searches_for_torch(request, monkeypatch) -> None:
    """Patches faiss's classes as `faiss.contrib.torch_utils` does.

    It takes `params` from `search`, and keeps the one of before beside it.
    """
    kinds = [x for x in vars(faiss).values() if isinstance(x, type)]
    kinds = [x for x in kinds if issubclass(x, faiss.Index)]
    for kind in kinds if request.param else ():
        if "search" in vars(kind):
            monkeypatch.setattr(
                kind, "search_numpy", vars(kind)["search"], raising=False
            )
            monkeypatch.setattr(
                kind, "search", lambda self, x, k: self.search_numpy(x, k)
            )


@pytest.mark.parametrize("factory", KINDS)
@pytest.mark.usefixtures("searches_for_torch")
def test_approximate_kinds_search_filter_and_change(factory) -> None:
    x = gallery(600)
    index = Index(x, {"label": np.arange(600) % 3}, factory=factory)
    exact, _ = sorted_all(x, x, 11)
    neighbors = index.search(x, 10, exclude=index.ids).ids
    hits = [
        np.isin(a[1:], b).mean() for a, b in zip(exact, neighbors, strict=True)
    ]
    assert index.recall.at[10] == pytest.approx(np.mean(hits), abs=0.05)
    assert (neighbors != index.ids[:, None]).all()
    index.remove(np.arange(0, 600, 2))
    new = index.add(x[:1])
    assert new.tolist() == [600]
    if factory == "PQ4x4np":
        return
    ids = index.search(x[:50], 20).ids
    assert set(ids[ids % 2 == 0]) <= {600}
    assert 600 in ids
    filtered_ids = index.search(x[:50], 20, where={"label": 1}).ids
    assert set(filtered_ids.ravel() % 3) <= {1, 2}  # 2 is -1, for none.
    assert set(filtered_ids.ravel() % 2) <= {1}


@pytest.mark.parametrize("factory", ["IVF8,Flat", "IVF8,PQ4x4np"])
def test_several_threads_find_what_one_finds(factory) -> None:
    x = gallery(600)
    index = Index(x, factory=factory, parameters="nprobe=3")
    threads = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        alone = [index.search(query, 40) for query in x[:100]]
        faiss.omp_set_num_threads(3)
        shared = [index.search(query, 40) for query in x[:100]]
        together = index.search(x[:100], 40)
    finally:
        faiss.omp_set_num_threads(threads)
    for row, (a, b) in enumerate(zip(alone, shared, strict=True)):
        for row_ids in (b.ids[0], together.ids[row]):
            # Compressed vectors of different rows are often the same.
            assert np.isin(a.ids[0], row_ids).mean() > 0.9
        np.testing.assert_allclose(b.scores, a.scores, rtol=1e-5)
        np.testing.assert_allclose(together.scores[row], a.scores[0], rtol=1e-5)


def test_recall_of_approximate_kinds_is_measured() -> None:
    x = gallery(800, 16)
    thorough = Index(x, factory="IVF16,Flat", parameters="nprobe=16").recall
    assert thorough.at == {1: 1.0, 10: 1.0}
    assert thorough.score_error < 1e-6
    hasty = Index(x, factory="IVF16,Flat", parameters="nprobe=1").recall
    assert hasty.at[10] < 0.7
    rough = Index(x, factory="IVF16,PQ4x4np", parameters="nprobe=16").recall
    assert rough.score_error > 0.01
    assert (rough.queries, rough.rows) == (500, 800)
    assert Index(x).recall is None
    # By default, the square root of the number of lists.
    assert Index(x, factory="IVF16,Flat").parameters == "nprobe=4"


NAN = np.where(np.arange(24).reshape(2, 12) == 17, np.nan, 1.0)

REFUSED_QUERIES = [
    (NAN, "first of which is row 1"),
    (np.full((1, 12), np.inf), "must be finite"),
    (np.zeros((1, 12)), "nonzero length"),
    (np.full((1, 12), 1e200), "float32 can hold"),
    (np.full((1, 12), "a"), "real numbers"),
    (np.ones((2, 11)), r"\(N, 12\).*shape \(2, 11\)"),
    (np.ones(13), r"shape \(13,\)"),
    (np.ones((1, 2, 12)), r"\(N, 12\)"),
    (np.zeros((1, 4, 4, 3), np.uint8), "without a model"),
]

REFUSED_OPTIONS = [
    ({"factory": "Flatt"}, "factory='Flatt'"),
    ({"factory": None}, "must be a factory string"),
    ({"parameters": 3}, "parameters=3"),
    ({"factory": "IVF8,PQ5"}, "must divide the number of dimensions"),
    ({"factory": "IVF64,Flat"}, "for 20 vectors"),
    ({"parameters": "nprobe=4"}, "parameters='nprobe=4'"),
    ({"columns": {"a": range(3)}}, "3 values in the column 'a'"),
]


def test_unfit_arguments_raise() -> None:
    index = Index(gallery(5))
    for queries, message in REFUSED_QUERIES:
        with pytest.raises(ValueError, match=message):
            index.search(queries)
    for options, message in REFUSED_OPTIONS:
        with pytest.raises(ValueError, match=message):
            Index(gallery(20), **options)
    for k in (0, -1, 2.0):
        with pytest.raises(ValueError, match="`k` of Index.search"):
            index.search(gallery(1), k)
    for exclude in ([1, 2], [1.0], [[1]], [2**70]):
        with pytest.raises(ValueError, match="`exclude` of Index.search"):
            index.search(gallery(1), exclude=exclude)


def test_embeddings_and_labels_are_in_id_order() -> None:
    x = gallery(6)
    index = Index(x, {"label": [3, 3, 4, 4, 5, 5]})
    index.remove([1, 4])
    np.testing.assert_allclose(
        index.embeddings, units(x)[[0, 2, 3, 5]], atol=1e-7
    )
    assert index.labels == [3, 4, 4, 5]
    with_names = Index(x[:2], {"label": [3, 4], "name": ["crow", "jay"]})
    assert with_names.labels == ["crow", "jay"]


def test_missing_embeddings_and_labels_raise() -> None:
    with pytest.raises(ValueError, match="does not keep them"):
        _ = Index(gallery(), factory="SQ8").embeddings
    with pytest.raises(ValueError, match="every row has a value"):
        _ = Index(gallery(2), {"label": [1, None]}).labels


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("work", ["search", "range", "kmeans"])
def test_forked_process_can_search(work) -> None:
    """The parent's OpenMP threads do not exist in the fork."""
    x = np.random.default_rng(0).normal(size=(20000, 16)).astype(np.float32)
    index = Index(x, {"n": range(len(x))}, factory="IVF32,Flat")
    calls = {
        "search": lambda: index.search(x[:300], 5),
        "range": lambda: index.range_search(x[:300], 0.99),
        "kmeans": lambda: kmeans(x, 20, iterations=1),
    }
    calls[work]()

    def again() -> None:
        signal.alarm(30)  # Ends the process if it hangs.
        calls[work]()

    assert exit_status(forked(again)) == 0


def test_removed_argument_names_its_replacement() -> None:
    for removed in ({"store": "lancedb://a/b"}, {"precision": "int8"}):
        with pytest.raises(TypeError, match=f"argument `{min(removed)}` any"):
            Index(np.eye(3), **removed)
