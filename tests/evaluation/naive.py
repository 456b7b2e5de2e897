"""Retrieval metrics by loops over full rankings, from their definitions."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from keras_dml.evaluation import Results


def integers(*arrays: np.ndarray) -> list[np.ndarray]:
    """Floats as Python integers, all times the same power of two."""
    ratios = [
        [float(value).as_integer_ratio() for value in array.flat]
        for array in arrays
    ]
    scale = max(below for each in ratios for _, below in each)
    return [
        np.array([above * (scale // below) for above, below in each], object)
        .reshape(array.shape)
        for each, array in zip(ratios, arrays, strict=True)
    ]  # fmt: skip


def scores_of(x: np.ndarray, y: np.ndarray, distance: str) -> list[list]:
    """Integers or fractions that order the rows of `y` for each of `x`.

    The larger, the nearer: what is the same for all rows of `y` is left out,
    and cosines are squared with their signs.
    """
    x, y = integers(x, y)
    products, squares = x @ y.T, (y * y).sum(axis=1)
    if distance == "dot":
        return products.tolist()
    if distance == "euclidean":
        return (2 * products - squares).tolist()
    return [
        [
            Fraction(product * abs(product), square or 1)
            for product, square in zip(row, squares, strict=True)
        ]
        for row in products
    ]


def rankings(
    queries: np.ndarray,
    gallery: np.ndarray,
    distance: str,
    ignored: Callable[[int, int], bool],
) -> list[list[int]]:
    """For each query all gallery rows that it may retrieve, nearest first."""
    result = []
    for i, scores in enumerate(scores_of(queries, gallery, distance)):
        rows = [j for j in range(len(gallery)) if not ignored(i, j)]
        result.append(sorted(rows, key=lambda j: -scores[j]))
    return result


def ndcg(gains: list[float], k: int) -> float:
    """nDCG@k, given the gain of each retrieved image."""

    def discounted(ordered: list[float]) -> float:
        return sum(
            gain / math.log2(1 + place)
            for place, gain in enumerate(ordered[:k], start=1)
        )

    return discounted(gains) / discounted(sorted(gains, reverse=True))


def metric(name: str, hits: list[bool]) -> float:
    """A metric of one query, given whether each retrieved image is right."""
    relevant = sum(hits)

    def precision(depth: int) -> float:
        return sum(hits[:depth]) / depth

    def average_precision(depth: int, divisor: int) -> float:
        return (
            sum(
                precision(i + 1)
                for i in range(min(depth, len(hits)))
                if hits[i]
            )
            / divisor
        )

    if name.startswith("recall@"):
        return float(any(hits[: int(name.removeprefix("recall@"))]))
    if name.startswith("precision@"):
        return precision(int(name.removeprefix("precision@")))
    if name.startswith("ndcg@"):
        return ndcg([float(hit) for hit in hits], int(name[5:]))
    if name == "r_precision":
        return precision(relevant)
    if name == "map@r":
        return average_precision(relevant, relevant)
    if name == "map@r_with_self":
        return average_precision(relevant + 1, relevant + 1)
    if name == "map":
        return average_precision(len(hits), relevant)
    if name == "mrr":
        return 1 / (1 + hits.index(True))
    if name == "minp":
        last = max(i for i, hit in enumerate(hits) if hit)
        return relevant / (1 + last)
    k = int(name.removeprefix("map@"))
    return average_precision(k, min(k, relevant))


def per_query(
    name: str,
    order: list[list[int]],
    query_labels: np.ndarray,
    gallery_labels: np.ndarray,
) -> list[float]:
    """The metric of every query that has a relevant image."""
    values = []
    for i, rows in enumerate(order):
        hits = (gallery_labels[rows] == query_labels[i]).tolist()
        if any(hits):
            values.append(metric(name, hits))
    return values


def check(
    results: Results,
    order: list[list[int]],
    query_labels: np.ndarray,
    gallery_labels: np.ndarray,
) -> None:
    """Asserts that all metrics are those of rankings."""
    for name in results:
        expected = per_query(name, order, query_labels, gallery_labels)
        assert results.num_queries == len(expected)
        np.testing.assert_allclose(
            results.per_query[name], expected, rtol=1e-12, err_msg=name
        )
        np.testing.assert_allclose(results[name], np.mean(expected), 1e-12)


def assert_same(first: Results, second: Results) -> None:
    """Asserts equal metrics of equal queries, to the last digit."""
    assert dict(first) == dict(second)
    assert list(first.per_query) == list(second.per_query)
    for name, values in first.per_query.items():
        np.testing.assert_array_equal(values, second.per_query[name])
    np.testing.assert_array_equal(first.query_rows, second.query_rows)
