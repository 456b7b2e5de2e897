"""Ranks against loops over full rankings in rational arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_dml.evaluation import Protocol, evaluate_embeddings
from keras_dml.evaluation.ranks import search, tiles
from keras_dml.utils.vectors import blocks
from tests.evaluation import naive

METRICS = (
    "recall@1",
    "recall@3",
    "recall@1000",
    "precision@1",
    "precision@4",
    "ndcg@1",
    "ndcg@4",
    "ndcg@1000",
    "r_precision",
    "map@r",
    "map@r_with_self",
    "map",
    "map@4",
    "mrr",
    "minp",
)
DISTANCES = ("cosine", "euclidean", "dot")


def lattice(
    count: int, dims: int, classes: int, seed: int = 0, width: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Points with many equal scores, many duplicates and some singletons."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-width, width + 1, (count, dims))
    return x.astype(np.float32), rng.integers(0, classes, count)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(2, 25),
    classes=st.integers(1, 6),
    width=st.integers(0, 2),
    distance=st.sampled_from(["euclidean", "dot"]),
)
def test_metrics_match_a_naive_ranking_on_any_lattice(
    seed, count, classes, width, distance
):
    x, labels = lattice(count, 2, classes, seed, width)
    labels[:2] = 0
    order = naive.rankings(x, x, distance, lambda i, j: i == j)
    results = evaluate_embeddings(x, labels, metrics=METRICS, distance=distance)
    naive.check(results, order, labels, labels)


@pytest.mark.parametrize("distance", DISTANCES)
def test_duplicates_tie_exactly_under_every_distance(distance):
    # Copies of each vector in two classes: only the row decides.
    rng = np.random.default_rng(2)
    x = np.tile(rng.standard_normal((40, 100)).astype(np.float32), (3, 1))
    labels = np.concatenate([np.arange(40), 100 + np.arange(40), np.arange(40)])
    results = evaluate_embeddings(
        x, labels, metrics=("recall@k", "mrr"), ks=(1, 2), distance=distance
    )
    # Rows 40–79 of another class precede the copy in rows 80–119, while
    # the copy in rows 0–39 precedes them.
    np.testing.assert_array_equal(results.query_rows, np.r_[:40, 80:120])
    np.testing.assert_array_equal(
        results.per_query["mrr"], np.repeat([0.5, 1.0], 40)
    )
    assert results["recall@1"] == 0.5
    assert results["recall@2"] == 1.0


def test_own_row_is_left_out_not_the_first_hit():
    # The duplicate of another class is the first hit of row 1, not row 1.
    x = np.array([[1.0, 0], [1.0, 0], [0.9, 0.1], [0, 1.0]])
    results = evaluate_embeddings(x, np.array([0, 1, 1, 0]), metrics=("mrr",))
    np.testing.assert_allclose(
        results.per_query["mrr"], [1 / 3, 1 / 2, 1 / 2, 1 / 2]
    )


def test_ids_beyond_float32_stay_apart():
    labels = np.array([2**24, 2**24 + 1, 2**24, 2**24 + 1]) + 2**53
    x = np.array([[0.0], [1.0], [1.25], [0.25]])
    results = evaluate_embeddings(
        x, labels, metrics=("recall@1",), distance="euclidean"
    )
    assert results.num_classes == 2
    assert results["recall@1"] == 0.0


# Rounding.


def near_ties(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Distances that differ by 1e-10: float32 sees them as equal."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 12, 80)
    directions = rng.standard_normal((80, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = 1 + 1e-10 * rng.permutation(80)[:, None]
    return directions * lengths, labels


def test_order_is_exact_where_float32_cannot_tell():
    directions, labels = near_ties()
    center = np.zeros((5, 3))
    query_labels = np.arange(5)
    order = naive.rankings(center, directions, "euclidean", lambda i, j: False)
    results = evaluate_embeddings(
        center,
        query_labels,
        gallery=directions,
        gallery_labels=labels,
        metrics=METRICS,
        distance="euclidean",
    )
    naive.check(results, order, query_labels, labels)


def collapsed(noise: float, centers: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors in a few tight bunches, with classes across them."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((centers, 8))[rng.integers(0, centers, 80)]
    x += noise * rng.standard_normal((80, 8))
    return x.astype(np.float32), rng.integers(0, 15, 80)


@pytest.mark.parametrize("noise, centers", [(1e-3, 1), (1e-6, 1), (1e-6, 2)])
@pytest.mark.parametrize("distance", DISTANCES)
def test_metrics_are_exact_for_collapsed_embeddings(noise, centers, distance):
    x, labels = collapsed(noise, centers)
    order = naive.rankings(x, x, distance, lambda i, j: i == j)
    results = evaluate_embeddings(x, labels, metrics=METRICS, distance=distance)
    naive.check(results, order, labels, labels)


def test_undecided_blocks_are_recomputed_in_float64(monkeypatch):
    calls = []
    original = tiles.Counter._in_float64

    def counted(self, band, pairs):
        calls.append(band)
        return original(self, band, pairs)

    monkeypatch.setattr(tiles.Counter, "_in_float64", counted)
    x, labels = collapsed(1e-6, 2)
    evaluate_embeddings(x, labels, metrics=METRICS, distance="euclidean")
    assert calls and {band.mirrored for band in calls} == {False, True}


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("value", [0.0, 0.1, 1e30, 1e-30])
def test_identical_embeddings_rank_by_row(distance, value):
    labels = np.array([0, 1, 0, 1, 2, 2])
    x = np.full((6, 7), value)
    results = evaluate_embeddings(
        x, labels, metrics=("mrr", "map"), distance=distance
    )
    # For each query the rank of its only relevant row among the others.
    ranks = np.array([2, 3, 1, 2, 5, 5])
    np.testing.assert_allclose(results.per_query["mrr"], 1 / ranks)
    np.testing.assert_allclose(results.per_query["map"], 1 / ranks)


# Nothing depends on how the work is cut up.


def noisy(count: int, classes: int, dims: int, seed: int):
    """Floats of classes that overlap, the last tenth a copy of the first."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    x = rng.standard_normal((classes, dims))[labels]
    x = (x + 1.5 * rng.standard_normal(x.shape)).astype(np.float32)
    x[-(count // 10) :] = x[: count // 10]
    return x, labels


@pytest.mark.parametrize("distance", ["cosine", "dot"])
def test_results_are_independent_of_blocks_and_threads(monkeypatch, distance):
    x, labels = noisy(300, 30, 12, seed=4)
    options = {"metrics": METRICS, "distance": distance}
    expected = evaluate_embeddings(x, labels, **options)
    for side, band, threads in [
        (64, 64, 1),
        (128, 1000, 7),
        (150, 2**18, 2),
    ]:
        monkeypatch.setattr(search, "MAX_TILE_SIDE", side)
        monkeypatch.setattr(tiles, "BAND_SCORES", band)
        monkeypatch.setattr(search, "_threads", lambda n=threads: n)
        results = evaluate_embeddings(x, labels, **options)
        naive.assert_same(results, expected)


def test_results_are_independent_of_memory(monkeypatch):
    cut = []
    original = search._panels

    def counted(*args):
        cut.append(original(*args))
        return cut[-1]

    x, labels = lattice(700, 4, 20, width=3)
    options = {"metrics": METRICS, "distance": "dot"}
    expected = evaluate_embeddings(x, labels, **options)
    monkeypatch.setattr(search, "_panels", counted)
    results = evaluate_embeddings(x, labels, memory="1MB", **options)
    assert len(cut.pop()) > 2
    naive.assert_same(results, expected)


_POINTS, _CLASSES = lattice(200, 4, 20)
_TAGS = np.random.default_rng(1).random((200, 5)) < 0.3


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        (_CLASSES, {"exclude": np.arange(200) % 3}),
        (_CLASSES, {"prefixes": (2, 3)}),
        (_CLASSES, {"rerank": "query_expansion"}),
        (
            _CLASSES,
            {"protocol": Protocol(np.arange(150, 20, -1), np.arange(180))},
        ),
        ({"fine": _CLASSES, "coarse": _CLASSES // 4}, {}),
        (_TAGS, {"relevance": "any"}),
        (_TAGS, {"relevance": "all"}),
        (_TAGS, {"relevance": "shared"}),
        (_TAGS, {"relevance": "jaccard"}),
    ],
)
def test_results_are_equal_in_several_panels(monkeypatch, labels, options):
    options = {
        "metrics": ("recall@1", "map@r", "ndcg@4", "macro/mrr")
    } | options
    expected = evaluate_embeddings(_POINTS, labels, **options)
    monkeypatch.setattr(
        search, "_panels", lambda scores, *_: blocks(len(scores.queries), 50)
    )
    results = evaluate_embeddings(_POINTS, labels, **options)
    naive.assert_same(results, expected)


@pytest.mark.parametrize(
    "share, cores, expected",
    [("", 4, 4), ("1", 4, 1), ("8", 4, 4), ("0", 4, 1), ("two", 4, 4),
     ("", 99, search.MAX_THREADS)],
)  # fmt: skip
def test_thread_count_follows_environment_and_cores(
    monkeypatch, share, cores, expected
):
    monkeypatch.setenv("OMP_NUM_THREADS", share)
    monkeypatch.setattr(search, "usable_cores", lambda: cores)
    assert search._threads() == expected


@pytest.mark.parametrize("distance", DISTANCES)
def test_results_are_independent_of_rounding_in_the_product(
    monkeypatch, distance
):
    # Any library's product is off by no more than the tolerance.
    rng = np.random.default_rng(6)
    x, labels = collapsed(1e-5, 3)
    expected = evaluate_embeddings(
        x, labels, metrics=METRICS, distance=distance
    )

    class Rounding(tiles.Tile):
        def __init__(self, values, tolerance, rows, items, mirrored=False):
            error = 0.4 * (tolerance if mirrored else tolerance[:, None])
            values = values + error * rng.uniform(-1, 1, values.shape)
            values = values.astype(np.float32)
            super().__init__(values, tolerance, rows, items, mirrored)

    monkeypatch.setattr(tiles, "Tile", Rounding)
    results = evaluate_embeddings(x, labels, metrics=METRICS, distance=distance)
    naive.assert_same(results, expected)


def test_error_in_a_thread_is_raised(monkeypatch):
    def broken(*args):
        raise MemoryError("no more")

    monkeypatch.setattr(tiles.Counter, "count", broken)
    x, labels = lattice(300, 4, 10)
    with pytest.raises(MemoryError, match="no more"):
        evaluate_embeddings(x, labels)


# Queries and galleries.


@pytest.mark.parametrize("is_protocol", [False, True])
def test_metrics_match_a_naive_ranking_of_a_gallery(is_protocol):
    x, labels = lattice(100, 3, 25, seed=8)
    queries, gallery = np.r_[:40], np.r_[40:100]
    options = {"gallery": x[gallery], "gallery_labels": labels[gallery]}
    inputs = x[queries], labels[queries]
    if is_protocol:
        rng = np.random.default_rng(0)
        queries, gallery = rng.permutation(100)[:60], rng.permutation(100)[:70]
        options, inputs = {"protocol": Protocol(queries, gallery)}, (x, labels)
    order = naive.rankings(
        x[queries], x[gallery], "dot", lambda i, j: queries[i] == gallery[j]
    )
    results = evaluate_embeddings(
        *inputs, metrics=METRICS, distance="dot", **options
    )
    naive.check(results, order, labels[queries], labels[gallery])
    assert set(results.query_rows) <= set(queries)


@pytest.mark.parametrize("separate", [False, True])
def test_same_class_in_the_same_group_is_ignored(separate):
    x, labels = lattice(120, 3, 12, seed=9)
    cameras = np.random.default_rng(1).integers(0, 3, 120)
    a, b = (np.r_[:40], np.r_[40:120]) if separate else (np.r_[:120],) * 2

    def ignored(i, j):
        same_class = labels[a[i]] == labels[b[j]]
        same_camera = cameras[a[i]] == cameras[b[j]]
        return a[i] == b[j] or (same_class and same_camera)

    order = naive.rankings(x[a], x[b], "dot", ignored)
    options = {"metrics": METRICS, "distance": "dot", "exclude": cameras}
    if separate:
        options |= {"gallery": x[b], "gallery_labels": labels[b]}
        options["exclude"] = (cameras[a], cameras[b])
    results = evaluate_embeddings(x[a], labels[a], **options)
    naive.check(results, order, labels[a], labels[b])
