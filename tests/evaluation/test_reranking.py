"""Re-ranking against loops, written from the papers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_dml.evaluation import (
    RERANKING,
    AlphaQueryExpansion,
    DatabaseAugmentation,
    KReciprocal,
    evaluate_embeddings,
    reciprocal,
    rerank,
    reranking,
)
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.evaluation.reranking import nearest_others
from tests.evaluation import naive


def squared_distances(x: np.ndarray) -> np.ndarray:
    return np.square(x[:, None] - x).sum(-1)


def k_reciprocal(
    distances: np.ndarray, num_queries: int, k1: int, k2: int, share: float
) -> np.ndarray:
    """Zhong et al., from squared distances of all points, queries first.

    Returns the distances of all queries to all points.
    """
    count = len(distances)
    largest = distances.max(axis=1, keepdims=True)
    d = np.divide(
        distances, largest, np.zeros_like(distances), where=largest > 0
    )
    order = []
    for i in range(count):
        other_rows = [j for j in range(count) if j != i]
        order.append(
            [i, *sorted(other_rows, key=lambda j: (distances[i, j], j))]
        )

    def reciprocal_neighbors(i: int, k: int) -> set[int]:
        return {j for j in order[i][: k + 1] if i in order[j][: k + 1]}

    v = np.zeros((count, count))
    for i in range(count):
        neighborhood = reciprocal_neighbors(i, k1)
        expanded = set(neighborhood)
        for j in neighborhood:
            theirs = reciprocal_neighbors(j, int(np.around(k1 / 2)))
            if len(theirs & neighborhood) > 2 / 3 * len(theirs):
                expanded |= theirs
        for j in expanded:
            v[i, j] = np.exp(-d[i, j])
        v[i] /= v[i].sum()
    if k2 > 1:
        v = np.array([v[order[i][:k2]].mean(axis=0) for i in range(count)])
    result = np.zeros((num_queries, count))
    for i in range(num_queries):
        for j in range(count):
            overlap = np.minimum(v[i], v[j]).sum()
            jaccard = 1 - overlap / (2 - overlap)
            result[i, j] = (1 - share) * jaccard + share * d[i, j]
    return result


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(3, 24),
    k1=st.integers(1, 9),
    k2=st.integers(1, 5),
)
def test_k_reciprocal_matches_the_paper_on_any_lattice(seed, count, k1, k2):
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (count, 2)).astype(float)
    num_queries = count // 3
    expected = k_reciprocal(squared_distances(x), num_queries, k1, k2, 0.3)
    outside = np.full(num_queries, -1)
    kind = KReciprocal(k1, k2)
    distances = kind.distances(
        x[:num_queries], x[num_queries:], outside, "euclidean"
    )(slice(0, num_queries))
    np.testing.assert_allclose(distances, expected[:, num_queries:], atol=1e-10)
    # All against all: queries are images of the gallery.
    every = np.arange(count)
    distances = kind.distances(x, x, every, "euclidean")(slice(0, count))
    expected = k_reciprocal(squared_distances(x), count, k1, k2, 0.3)
    np.testing.assert_allclose(distances, expected, atol=1e-10)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(reranking, "THREAD_BYTES", 64 * 60 * 7)
    monkeypatch.setattr(reciprocal, "_BLOCK_POINTS", 7)
    monkeypatch.setattr(reciprocal, "_BLOCK_OVERLAPS", 100)


def clusters(count: int = 60, dims: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 8, count)
    x = rng.standard_normal((8, dims))[labels]
    return x + 0.6 * rng.standard_normal((count, dims)), labels


def measured(distances: np.ndarray, labels: np.ndarray) -> float:
    """MAP@R of all against all, from distances."""
    orders = np.argsort(distances, axis=1, kind="stable").tolist()
    rankings = [[j for j in order if j != i] for i, order in enumerate(orders)]
    return float(np.mean(naive.per_query("map@r", rankings, labels, labels)))


@pytest.mark.parametrize("memory", ["1MB", "512MB"])
def test_evaluate_ranks_by_reranked_distances(memory):
    x, labels = clusters()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = k_reciprocal(squared_distances(unit), 60, 8, 3, 0.3).round(12)
    results = evaluate_embeddings(
        x,
        labels,
        metrics=("map@r", "nmi", "fnmr@fmr=0.1"),
        rerank={"name": "k_reciprocal", "k1": 8, "k2": 3},
        memory=memory,
    )
    plain = evaluate_embeddings(
        x, labels, metrics=("map@r", "nmi", "fnmr@fmr=0.1")
    )
    assert results["map@r"] == pytest.approx(measured(expected, labels))
    assert results["map@r"] > plain["map@r"]
    assert results["nmi"] == plain["nmi"]
    assert results["fnmr@fmr=0.1"] == plain["fnmr@fmr=0.1"]
    assert results.distance == "cosine + KReciprocal"


# Expansion.


def expanded(
    x: np.ndarray,
    y: np.ndarray,
    itself: np.ndarray,
    k: int,
    alpha: float | None,
) -> np.ndarray:
    """Loops over unit vectors."""
    x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))
    result = []
    for query, self_row in zip(x, itself, strict=True):
        cosines = y @ query
        order = [j for j in np.argsort(-cosines.round(12), kind="stable")]
        order = [j for j in order if j != self_row][:k]
        total = query.copy()
        for place, j in enumerate(order, start=1):
            weight = (k + 1 - place) / (k + 1)
            if alpha is not None:
                weight = max(0.0, cosines[j]) ** alpha
            total += weight * y[j]
        result.append(total / np.linalg.norm(total))
    return np.array(result)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("k", [1, 5, 44])
def test_query_expansion_is_the_weighted_mean(small_blocks, alpha, k):
    x, _ = clusters()
    queries, gallery = x[:20], x[15:]
    itself = np.where(np.arange(20) < 15, -1, np.arange(20) - 15)
    expanded_queries, same = AlphaQueryExpansion(k, alpha).embeddings(
        queries, gallery, itself
    )
    assert same is gallery
    expected = expanded(queries, gallery, itself, k, alpha)
    np.testing.assert_allclose(expanded_queries, expected, atol=1e-12)


@pytest.mark.parametrize("alpha", [None, 3.0])
def test_database_augmentation_is_the_weighted_mean(alpha):
    x, _ = clusters()
    same, augmented_gallery = DatabaseAugmentation(4, alpha).embeddings(
        x[:3], x, np.arange(3)
    )
    np.testing.assert_array_equal(same, x[:3])
    expected = expanded(x, x, np.arange(60), 4, alpha)
    np.testing.assert_allclose(augmented_gallery, expected, atol=1e-12)


def test_equal_vectors_are_neighbors_in_row_order():
    x = np.repeat(np.eye(3), 4, axis=0)
    scores = Scores(x, x, "cosine")
    neighbors = nearest_others(scores, np.arange(12), 5)
    for i, row in enumerate(neighbors.tolist()):
        group = [j for j in range(i - i % 4, i - i % 4 + 4) if j != i]
        rest = [j for j in range(12) if j // 4 != i // 4]
        assert row == group + rest[:2]


# Search results.


def test_rerank_returns_the_nearest_rows():
    x, _ = clusters()
    distances, rows = rerank(x[:10], x[10:], 7, rerank=KReciprocal(8, 3))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = k_reciprocal(squared_distances(unit), 10, 8, 3, 0.3)
    expected = expected[:, 10:].round(12)
    order = np.argsort(expected, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_allclose(
        distances, np.take_along_axis(expected, order, axis=1), atol=1e-10
    )


def test_query_in_the_gallery_does_not_find_itself():
    x, _ = clusters()
    distances, rows = rerank(
        x[:10], x, 59, rerank="query_expansion", itself=np.arange(10)
    )
    assert all(i not in row for i, row in enumerate(rows))
    assert np.isfinite(distances).all()
    assert (np.diff(distances, axis=1) >= 0).all()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"k": 51}, "at most 50"),
        ({"k": 0}, "`k` of rerank"),
        ({"itself": np.full(10, 50)}, "rows of the 50"),
        ({"rerank": "k_reciprocl"}, "Did you mean 'k_reciprocal'"),
        ({"rerank": {"name": "k_reciprocal", "k3": 1}}, "arguments of KRec"),
        ({"rerank": {"k1": 1}}, "a name and arguments"),
        ({"rerank": KReciprocal(), "distance": "dot"}, "`distance` of rerank"),
        (
            {"rerank": AlphaQueryExpansion(), "distance": "euclidean"},
            "'cosine' gives the same ranking",
        ),
        ({"rerank": [KReciprocal(), AlphaQueryExpansion()]}, "last step"),
    ],
)
def test_unfit_arguments_of_rerank_raise(options, message):
    x, _ = clusters()
    with pytest.raises(ValueError, match=message):
        rerank(x[:10], x[10:], **{"k": 5, **options})


@pytest.mark.parametrize(
    "make",
    [
        lambda: KReciprocal(k1=0),
        lambda: KReciprocal(k2=0),
        lambda: KReciprocal(lambda_value=1.1),
        lambda: AlphaQueryExpansion(k=0),
        lambda: AlphaQueryExpansion(alpha=-1),
        lambda: DatabaseAugmentation(alpha=np.nan),
    ],
)
def test_unfit_arguments_of_reranking_kinds_raise(make):
    with pytest.raises(ValueError, match="must be"):
        make()


@pytest.mark.parametrize("name", RERANKING)
def test_every_kind_has_a_paper_and_improves_clusters(name):
    x, labels = clusters(200)
    assert RERANKING[name].paper is not None
    plain = evaluate_embeddings(x, labels, metrics="map@r")
    better = evaluate_embeddings(x, labels, metrics="map@r", rerank=name)
    assert better["map@r"] > plain["map@r"]
