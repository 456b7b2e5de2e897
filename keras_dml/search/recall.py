"""Recall: what an approximate index misses, beside an exact search."""

from dataclasses import dataclass

import numpy as np

from keras_dml.search.engine import Engine
from keras_dml.utils.types import FloatArray, Rows

QUERIES, NEIGHBORS = 500, 10


@dataclass(frozen=True)
class Recall:
    """Recall of an index against exact search, when it was built.

    Images of the gallery are searched for among all others.

    Attributes:
        at: Share of the exact k nearest that are among the k found, by k.
        score_error: 95th percentile of the difference of scores that are
            returned to those of the embeddings; of compressed vectors.
        queries: Number of queries that it was measured with.
        rows: Number of images at that time.
    """

    at: dict[int, float]
    score_error: float
    queries: int
    rows: int


def measure(engine: Engine, x: FloatArray, ids: Rows) -> Recall | None:
    """Recall of an index of vectors x, (N, D), by ids; None if N < 2."""
    import faiss

    if len(x) < 2:
        return None
    k = min(NEIGHBORS, len(x) - 1)
    generator = np.random.default_rng(0)
    drawn = generator.choice(len(x), min(QUERIES, len(x)), replace=False)
    queries = x[drawn]
    _, exact = faiss.knn(queries, x, k + 1, engine.metric.faiss_type)
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
    hits = x[np.searchsorted(ids, found[row, column])]
    true = engine.metric.pairs(queries[row], hits)
    errors = np.abs(true - scores[row, column])
    error = float(np.quantile(errors, 0.95)) if len(errors) else 0.0
    return Recall(at, error, len(queries), len(x))
