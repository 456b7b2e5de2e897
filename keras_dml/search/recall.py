"""Recall: how much an approximate index misses, measured when it is built."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from keras_dml.search.engine import Engine
from keras_dml.search.scans import nearest_of_parts
from keras_dml.utils.types import FloatArray, Rows

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


def measure(
    engine: Engine, read: Callable[[], Iterable[FloatArray]], ids: Rows
) -> Recall | None:
    """Recall of an index; None if there are fewer than two vectors.

    `read` reads its vectors, (N, D) float32, with these ids, a part at a time.
    """
    count = len(ids)
    if count < 2:
        return None
    k = min(NEIGHBORS, count - 1)
    rng = np.random.default_rng(0)
    drawn = rng.choice(count, min(QUERIES, count), replace=False)
    queries = take_rows(read(), drawn, engine.dim)
    parts = _with_ids(read(), ids)
    metric = engine.metric
    exact = nearest_of_parts(parts, queries, k + 1, metric.faiss_type)[1]
    scores, hits = engine.search(queries, k + 1)
    # Lists of ids, without the query itself.
    pairs = [
        (a[a != query][:k], b[b != query][:k])
        for a, b, query in zip(exact, hits, ids[drawn], strict=True)
    ]
    at = {
        n: float(np.mean([np.isin(a[:n], b[:n]).mean() for a, b in pairs]))
        for n in sorted({1, k})
    }
    row, column = np.nonzero(hits >= 0)
    hit_rows = np.searchsorted(ids, hits[row, column])
    true = metric.pairs(queries[row], take_rows(read(), hit_rows, engine.dim))
    errors = np.abs(true - scores[row, column])
    error = float(np.quantile(errors, 0.95)) if len(errors) else 0.0
    return Recall(at, error, len(queries), count)


def take_rows(parts: Iterable[FloatArray], rows: Rows, dim: int) -> FloatArray:
    """Some rows of vectors that are read a part at a time, (n, D)."""
    result = np.empty((len(rows), dim), np.float32)
    first = 0
    for part in parts:
        inside = (rows >= first) & (rows < first + len(part))
        result[inside] = part[rows[inside] - first]
        first += len(part)
    return result


def _with_ids(
    parts: Iterable[FloatArray], ids: Rows
) -> Iterator[tuple[FloatArray, Rows]]:
    first = 0
    for part in parts:
        yield part, ids[first : first + len(part)]
        first += len(part)
