"""Retrieval metrics by loops over full rankings, from their definitions."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

Number = float | Fraction


def negative_squared_distance(x: np.ndarray, y: np.ndarray) -> Number:
    return -sum(
        (Fraction(float(a)) - Fraction(float(b))) ** 2
        for a, b in zip(x, y, strict=True)
    )


def dot(x: np.ndarray, y: np.ndarray) -> Number:
    return sum(
        (
            Fraction(float(a)) * Fraction(float(b))
            for a, b in zip(x, y, strict=True)
        ),
        Fraction(0),
    )


def signed_squared_cosine(x: np.ndarray, y: np.ndarray) -> Number:
    """Orders a query's images as the cosine does, without a square root."""
    product, square = dot(x, y), dot(y, y)
    if not square:
        return Fraction(0)
    return product * abs(product) / square


SCORES: dict[str, Callable[[np.ndarray, np.ndarray], Number]] = {
    "euclidean": negative_squared_distance,
    "dot": dot,
    "cosine": signed_squared_cosine,
}


def rankings(
    queries: np.ndarray,
    gallery: np.ndarray,
    distance: str,
    ignored: Callable[[int, int], bool],
) -> list[list[int]]:
    """For each query all gallery rows that it may retrieve, nearest first."""
    result = []
    for i, query in enumerate(queries):
        rows = [j for j in range(len(gallery)) if not ignored(i, j)]
        scores = {j: SCORES[distance](query, gallery[j]) for j in rows}
        result.append(sorted(rows, key=lambda j: (-scores[j], j)))
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
        hits = [bool(gallery_labels[j] == query_labels[i]) for j in rows]
        if any(hits):
            values.append(metric(name, hits))
    return values
