"""Recall: what an approximate index misses, compared to exact search."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from keras_dml.search.engine import Engine
from keras_dml.utils.types import FloatArray, Rows

Read = Callable[[], Iterable[FloatArray]]

QUERIES, NEIGHBORS = 500, 10


@dataclass(frozen=True)
class Recall:
    """Recall of an index, compared to exact search, when it was built.

    A sample of gallery images is searched for among all others.

    Attributes:
        at: By k, the fraction of the true k nearest neighbors among the k
            found.
        score_error: For compressed vectors, the 95th percentile of the error of
            the returned scores.
        queries: Number of queries used for the measurement.
        rows: Number of images in the index at that time.
    """

    at: dict[int, float]
    score_error: float
    queries: int
    rows: int


def measure(engine: Engine, read: Read, ids: Rows) -> Recall | None:
    """Recall of an index.

    Args:
        engine: It.
        read: What reads its vectors, (N, D) float32, a part at a time.
        ids: Their ids, (N,).

    Returns:
        The recall; None if N < 2.
    """
    count = len(ids)
    if count < 2:
        return None
    k = min(NEIGHBORS, count - 1)
    generator = np.random.default_rng(0)
    drawn = generator.choice(count, min(QUERIES, count), replace=False)
    queries = taken(read(), drawn, engine.dim)
    exact = _exact(engine, queries, read(), k + 1)
    scores, found = engine.search(queries, k + 1)
    # Lists of ids, without the query itself.
    pairs = [
        (a[a != own][:k], b[b != own][:k])
        for a, b, own in zip(ids[exact], found, ids[drawn], strict=True)
    ]
    at = {
        n: float(np.mean([np.isin(a[:n], b[:n]).mean() for a, b in pairs]))
        for n in sorted({1, k})
    }
    row, column = np.nonzero(found >= 0)
    rows = np.searchsorted(ids, found[row, column])
    hits = taken(read(), rows, engine.dim)
    true = engine.metric.pairs(queries[row], hits)
    errors = np.abs(true - scores[row, column])
    error = float(np.quantile(errors, 0.95)) if len(errors) else 0.0
    return Recall(at, error, len(queries), count)


def taken(parts: Iterable[FloatArray], rows: Rows, dim: int) -> FloatArray:
    """Some rows of vectors that are read a part at a time, (n, D)."""
    result = np.empty((len(rows), dim), np.float32)
    first = 0
    for part in parts:
        inside = (rows >= first) & (rows < first + len(part))
        result[inside] = part[rows[inside] - first]
        first += len(part)
    return result


def _exact(
    engine: Engine, queries: FloatArray, parts: Iterable[FloatArray], k: int
) -> Rows:
    """The k nearest rows of each query, by comparing all, (Q, k)."""
    import faiss

    metric = engine.metric
    best = np.empty((len(queries), 0)), np.empty((len(queries), 0), np.int64)
    first = 0
    for part in parts:
        found, rows = faiss.knn(
            queries, part, min(k, len(part)), metric.faiss_type
        )
        scores = np.hstack([best[0], metric.inner(found)])
        rows = np.hstack([best[1], rows + first])
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        best = (
            np.take_along_axis(scores, order, axis=1),
            np.take_along_axis(rows, order, axis=1),
        )
        first += len(part)
    return best[1]
