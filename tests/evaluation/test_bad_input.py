"""Errors for unusable labels and metric names give the reason and a way out."""

import numpy as np
import pytest

from keras_dml.data import ArraySet
from keras_dml.evaluation import METRICS, calibrate, evaluate_embeddings

X = np.random.default_rng(0).normal(size=(8, 4))
MISSING = {
    "booleans": [True, None] * 4,
    "floats": [1.0, 2.0, np.nan, 1.0] * 2,
    "an array of floats": np.array([1.0, np.nan] * 4),
    "integers": [1, 2, None, 1] * 2,
    "strings": ["a", "b", None, "a"] * 2,
    "objects": np.array([True, False, None, True] * 2, object),
}
RAGGED = {
    "integers": [[0, 1], [1]] * 4,
    "strings": [["a"], ["a", "b"]] * 4,
    "lists and labels": [[0, 1], 1] * 4,
    "tuples": ((0, 1), (1,)) * 4,
    "a column of a table": np.array([[0], [1, 2]] * 4, object),
}
ENTRIES = {
    "evaluate_embeddings": lambda y: evaluate_embeddings(X, y),
    "a hierarchy": lambda y: evaluate_embeddings(X, {"genus": y}),
    "a gallery": lambda y: evaluate_embeddings(
        X, np.arange(8) // 2, gallery=X, gallery_labels=y
    ),
    "calibrate": lambda y: calibrate(X, y),
    "ArraySet": lambda y: ArraySet(X, y),
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", MISSING)
def test_missing_labels_are_counted(kind, entry) -> None:
    count = sum(x is None or x != x for x in MISSING[kind])
    with pytest.raises(ValueError, match=rf"for {count} of 8 .*notna") as error:
        ENTRIES[entry](MISSING[kind])
    assert "2**24" not in str(error.value)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", RAGGED)
def test_ragged_labels_raise_and_name_sets(kind, entry) -> None:
    with pytest.raises(ValueError, match=r"lists as labels.*\[set\(x\) for"):
        ENTRIES[entry](RAGGED[kind])


def test_sets_of_ragged_labels_are_measured() -> None:
    sets = [set(x) for x in RAGGED["integers"]]
    table = np.array([[1, 1], [0, 1]] * 4)
    measured = dict(evaluate_embeddings(X, sets))
    assert measured == dict(evaluate_embeddings(X, table))


ELSEWHERE = {
    "mean_average_precision_at_r": "map@r",
    "mean_average_precision": "map",
    "mean_reciprocal_rank": "mrr",
    "precision_at_1": "precision@1",
    "AMI": "ami",
    "NMI": "nmi",
    "RecallAtK": "recall@k",
    "PrecisionAtK": "precision@k",
    "MapAtK": "map@k",
    "BNDCG": "ndcg@k",
    "recall_at_10": "recall@10",
    "precision": "precision@k",
    "map_at_5": "map@5",
    "normalized_mutual_info_score": "nmi",
    "v_measure_score": "nmi",
    "adjusted_mutual_info_score": "ami",
    "average_precision_score": "map",
    "label_ranking_average_precision_score": "map",
    "ndcg_score": "ndcg@k",
    "top_k_accuracy_score": "recall@k",
    "R@1": "recall@1",
    "rank-5": "recall@5",
    "mAP@R": "map@r",
    "macro/NDCG@10": "macro/ndcg@10",
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_metric_of_another_library_gets_our_name(name) -> None:
    with pytest.raises(ValueError, match="must be known metrics") as error:
        evaluate_embeddings(X, np.arange(8) // 2, metrics=name)
    message = str(error.value)
    assert f"{name!r}, which is {ELSEWHERE[name]!r} here." in message
    assert "Did you mean" not in message
    evaluate_embeddings(
        X, np.arange(8) // 2, metrics=ELSEWHERE[name], ks=(1, 2)
    )


@pytest.mark.parametrize("name", ["k", "silhouette_score", "roc_auc_score"])
def test_unknown_metric_gets_no_suggestion(name) -> None:
    assert METRICS.known_as(name) == []
    with pytest.raises(ValueError, match=f"{name!r}. Known: ami"):
        evaluate_embeddings(X, np.arange(8) // 2, metrics=name)
