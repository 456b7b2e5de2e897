"""k-nearest-neighbor accuracy: naive votes, scikit-learn, ties, exclusions."""

from collections import Counter

import keras
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from keras_dml.callbacks import RetrievalEvaluation
from keras_dml.data import ArraySet
from keras_dml.evaluation import (
    KReciprocal,
    Protocol,
    bootstrap,
    evaluate_embeddings,
)

RNG = np.random.default_rng(0)
Y = RNG.integers(5, size=80)
X = RNG.normal(size=(80, 6)) + 0.7 * np.eye(6)[Y]
GALLERY_Y = RNG.integers(5, size=120)
GALLERY = RNG.normal(size=(120, 6)) + 0.7 * np.eye(6)[GALLERY_Y]


def distances(x: np.ndarray, y: np.ndarray, distance: str) -> np.ndarray:
    if distance == "cosine":
        x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))
    if distance == "euclidean":
        return np.linalg.norm(x[:, None] - y, axis=2)
    return -x @ y.T


def naive(
    x, labels, y, gallery_labels, k, distance, ignored=None
) -> list[bool]:
    """One vote for each neighbor; of equally many, the nearest decides."""
    table = distances(x, y, distance)
    if ignored is not None:
        table[ignored] = np.inf
    result = []
    for row, label in zip(table, labels, strict=True):
        order = [i for i in np.argsort(row, kind="stable") if row[i] < np.inf]
        votes = Counter(gallery_labels[i] for i in order[:k])
        max_votes = max(votes.values())
        nearest = next(
            gallery_labels[i]
            for i in order
            if votes[gallery_labels[i]] == max_votes
        )
        result.append(nearest == label)
    return result


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "dot"])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 30, 500])
def test_accuracy_matches_naive_votes(k: int, distance: str) -> None:
    metrics, options = f"knn_accuracy@{k}", {"distance": distance}
    alone = evaluate_embeddings(X, Y, metrics=metrics, **options)
    self_mask = np.eye(80, dtype=bool)
    expected = naive(X, Y, X, Y, k, distance, self_mask)
    np.testing.assert_array_equal(alone.per_query[metrics], expected)
    apart = evaluate_embeddings(
        X,
        Y,
        gallery=GALLERY,
        gallery_labels=GALLERY_Y,
        metrics=(metrics, "recall@1"),
        memory="1MB",
        **options,
    )
    expected = naive(X, Y, GALLERY, GALLERY_Y, k, distance)
    np.testing.assert_array_equal(apart.per_query[metrics], expected)
    assert apart[metrics] == pytest.approx(np.mean(expected))
    if k == 1:
        assert apart[metrics] == apart["recall@1"]


@pytest.mark.parametrize("k", [1, 3, 5, 15])
def test_accuracy_matches_scikit_learn(k: int) -> None:
    """Two classes and odd k leave no ties."""
    labels, gallery_labels = Y % 2, GALLERY_Y % 2
    results = evaluate_embeddings(
        X,
        labels,
        gallery=GALLERY,
        gallery_labels=gallery_labels,
        distance="euclidean",
        metrics=f"knn_accuracy@{k}",
    )
    classifier = KNeighborsClassifier(k).fit(GALLERY, gallery_labels)
    assert results[f"knn_accuracy@{k}"] == classifier.score(X, labels)


def test_groups_protocols_and_distance_functions_are_heeded() -> None:
    groups, rows = np.arange(80) % 3, np.arange(0, 80, 2)
    name, ignored = "knn_accuracy@6", np.eye(80, dtype=bool)
    same = (Y[:, None] == Y) & (groups[:, None] == groups)
    results = evaluate_embeddings(X, Y, exclude=groups, metrics=name)
    expected = naive(X, Y, X, Y, 6, "cosine", same | ignored)
    np.testing.assert_array_equal(results.per_query[name], expected)
    results = evaluate_embeddings(
        X, Y, protocol=Protocol(rows, np.arange(60)), metrics=name
    )
    expected = naive(
        X[rows], Y[rows], X[:60], Y[:60], 6, "cosine", ignored[rows, :60]
    )
    np.testing.assert_array_equal(results.per_query[name], expected)
    results = evaluate_embeddings(
        X, Y, distance=lambda x, y: distances(x, y, "euclidean"), metrics=name
    )
    expected = naive(X, Y, X, Y, 6, "euclidean", ignored)
    np.testing.assert_array_equal(results.per_query[name], expected)


def test_distances_are_reranked_once_for_votes_and_ranks(monkeypatch) -> None:
    calls = []

    def counted(step, *arguments):
        calls.append(step)
        return rerank_distances(step, *arguments)

    rerank_distances = KReciprocal.distances
    monkeypatch.setattr(KReciprocal, "distances", counted)
    results = evaluate_embeddings(
        X, Y, metrics=("knn_accuracy@1", "recall@1"), rerank="k_reciprocal"
    )
    assert len(calls) == 1
    assert results["knn_accuracy@1"] == results["recall@1"]


def test_results_have_means_levels_intervals_and_logs() -> None:
    alone = np.where(np.arange(80) == 7, 99, Y)
    names = "knn_accuracy@3", "macro/knn_accuracy@3"
    results = evaluate_embeddings(X, alone, metrics=names)
    assert (results.num_queries, results.num_excluded) == (79, 1)
    classes = results.per_class(names[0])
    assert results[names[1]] == pytest.approx(np.mean(list(classes.values())))
    low, high = (
        bootstrap(results)[names[0]].low,
        bootstrap(results)[names[0]].high,
    )
    assert low < results[names[0]] < high
    levels = {"fine": Y, "coarse": (Y > 1).astype(int)}
    both = evaluate_embeddings(X, levels, metrics=names[0])
    for level, labels in levels.items():
        single = evaluate_embeddings(X, labels, metrics=names[0])
        assert both[f"{level}/{names[0]}"] == single[names[0]]
    model = keras.Sequential([keras.Input((6,)), keras.layers.Identity()])
    callback = RetrievalEvaluation(
        ArraySet(X.astype("float32"), Y), metrics=names
    )
    callback.set_model(model)
    callback.set_params({"epochs": 1})
    callback.on_epoch_end(0, logs := {})
    assert logs["val_knn_accuracy@3"] == pytest.approx(
        evaluate_embeddings(X, Y, metrics=names)[names[0]], abs=0.02
    )


def test_label_sets_and_names_without_k_raise() -> None:
    with pytest.raises(ValueError, match="or classify, if examples have sev"):
        evaluate_embeddings(
            X, np.eye(5, dtype=int)[Y], metrics="knn_accuracy@3"
        )

    def votes(neighbors):
        return neighbors.truth

    votes.of = "neighbors"
    with pytest.raises(ValueError, match="must end in '@k'"):
        evaluate_embeddings(X, Y, metrics=votes)
