"""What an approximate index misses, beside an exact search."""

from dataclasses import asdict, dataclass

import numpy as np

from keras_dml.search.engine import Engine
from keras_dml.utils.types import Config, FloatArray, Rows

QUERIES, NEIGHBORS = 500, 10


@dataclass(frozen=True)
class Recall:
    """Recall of an index against exact search, when it was built.

    Images of the gallery are searched for among all others.

    Attributes:
        at: Share of the exact k nearest that are among the k found, by k.
        score_error: 95th percentile of the difference of scores that are
            returned to cosine similarities; of compressed vectors.
        queries: Number of queries that it was measured with.
        rows: Number of images at that time.
    """

    at: dict[int, float]
    score_error: float
    queries: int
    rows: int

    def to_dict(self) -> Config:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, config: Config) -> "Recall":
        """What `to_dict` gave, also after a way through JSON."""
        at = {int(k): value for k, value in config["at"].items()}
        return cls(**{**config, "at": at})


def measure(engine: Engine, x: FloatArray, ids: Rows) -> Recall | None:
    """Measures an index that was built.

    Args:
        engine: The index.
        x: The unit vectors in it, (N, D).
        ids: Their ids, ascending, (N,).

    Returns:
        None where there are not two vectors to search among.
    """
    import faiss

    if len(x) < 2:
        return None
    k = min(NEIGHBORS, len(x) - 1)
    drawn = np.random.default_rng(0).choice(
        len(x), min(QUERIES, len(x)), replace=False
    )
    queries = x[drawn]
    _, exact = faiss.knn(queries, x, k + 1, faiss.METRIC_INNER_PRODUCT)
    scores, found = engine.search(queries, k + 1)
    exact, found = ids[exact], found
    own = ids[drawn][:, None]
    expected = [_others(row, i, k) for row, i in zip(exact, own, strict=True)]
    got = [_others(row, i, k) for row, i in zip(found, own, strict=True)]
    at = {
        n: float(
            np.mean(
                [
                    np.isin(a[:n], b[:n]).mean()
                    for a, b in zip(expected, got, strict=True)
                ]
            )
        )
        for n in sorted({1, k})
    }
    is_hit = found >= 0
    row, column = np.nonzero(is_hit)
    true = np.einsum(
        "nd,nd->n", queries[row], x[np.searchsorted(ids, found[row, column])]
    )
    errors = np.abs(true - scores[row, column])
    error = float(np.quantile(errors, 0.95)) if len(errors) else 0.0
    return Recall(at, error, len(queries), len(x))


def _others(found: Rows, own: Rows, k: int) -> Rows:
    return found[found != own][:k]
