"""Metrics on rankings whose values can be worked out by hand."""

import numpy as np
import pytest

from keras_dml.evaluation import evaluate_embeddings
from keras_dml.evaluation.metrics import parse_metric
from keras_dml.evaluation.ranks.positives import BEYOND_LIMIT, Limits, Ranks

RANKS = Ranks(
    queries=np.array([0, 4]),
    counts=np.array([3, 1]),
    # Right at 1, 3 and 7 of the first query, at 2 of the second.
    ranks=np.array([1, 3, 7, 2]),
)

GOLDEN = {
    "recall@1": [1, 0],
    "recall@2": [1, 1],
    "precision@1": [1, 0],
    "precision@5": [2 / 5, 1 / 5],
    "ndcg@1": [1, 0],
    "ndcg@3": [
        (1 + 1 / 2) / (1 + 1 / np.log2(3) + 1 / 2),
        (1 / np.log2(3)) / 1,
    ],
    "r_precision": [2 / 3, 0],
    "map@r": [(1 + 2 / 3) / 3, 0],
    "map@r_with_self": [(1 + 2 / 3) / 4, (1 / 2) / 2],
    "map": [(1 + 2 / 3 + 3 / 7) / 3, 1 / 2],
    "map@2": [1 / 2, 1 / 2],
    "map@7": [(1 + 2 / 3 + 3 / 7) / 3, 1 / 2],
    "mrr": [1, 1 / 2],
    "minp": [3 / 7, 1 / 2],
}


@pytest.mark.parametrize("name", GOLDEN)
def test_metrics_match_worked_examples(name):
    values = parse_metric(name).per_query(RANKS)
    np.testing.assert_allclose(values, GOLDEN[name], rtol=1e-15)


@pytest.mark.parametrize("name", GOLDEN)
def test_ranks_beyond_the_limits_have_no_influence(name):
    ranking_metric = parse_metric(name)
    every = ranking_metric.limits.of_every(RANKS.counts)
    limits = np.repeat(every, RANKS.counts)
    limits[RANKS.starts] = np.maximum(every, ranking_metric.limits.first)
    clipped = np.where(RANKS.ranks <= limits, RANKS.ranks, BEYOND_LIMIT)
    values = ranking_metric.per_query(
        Ranks(RANKS.queries, RANKS.counts, clipped)
    )
    np.testing.assert_allclose(values, GOLDEN[name], rtol=1e-15)


def test_map_and_ndcg_agree_with_scikit_learn():
    from sklearn.metrics import average_precision_score, ndcg_score

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 200)
    x = rng.standard_normal((10, 6))[labels] + rng.standard_normal((200, 6))
    results = evaluate_embeddings(
        x, labels, metrics=("map", "ndcg@5", "ndcg@300"), distance="dot"
    )
    off_diagonal = ~np.eye(200, dtype=bool)
    relevance = (labels[:, None] == labels)[off_diagonal].reshape(200, 199)
    scores = (x @ x.T)[off_diagonal].reshape(200, 199)
    for name, score in (
        ("map", average_precision_score),
        ("ndcg@5", lambda hits, x: ndcg_score(hits[None], x[None], k=5)),
        ("ndcg@300", lambda hits, x: ndcg_score(hits[None], x[None], k=300)),
    ):
        expected = list(map(score, relevance, scores))
        np.testing.assert_allclose(
            results.per_query[name], expected, rtol=1e-12
        )


def test_limits_combine_to_the_larger_one():
    limits = Limits(first=5) | Limits(every=3) | Limits(extra=0)
    assert limits == Limits(first=5, every=3, extra=0)
    np.testing.assert_array_equal(limits.of_every(np.array([1, 8])), [3, 8])
    assert (Limits(extra=1) | Limits(extra=0)).extra == 1
    np.testing.assert_array_equal(Limits(first=9).of_every(np.array([4])), [0])
