"""Recall: how much an approximate index misses, measured when it is built."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from keras_dml.search.engine import NO_ID, Engine
from keras_dml.search.scans import nearest_of_parts
from keras_dml.utils.types import FloatArray, Rows

MAX_QUERIES, NUM_NEIGHBORS = 500, 10

MAX_LEFT_OUT_SHARE = 0.1
"""Share of a gallery that is left out of a graph until it has been searched."""

ROWS = "rows of the gallery, each searched for among the others"
LEFT_OUT = "rows of the gallery, searched for before they were added"
OWN_QUERIES = "queries of your own"


@dataclass(frozen=True)
class Recall:
    """Recall of an index, compared to exact search, when it was built.

    It holds for queries like those that it was measured with: text that is
    searched for among images, for instance, may have a much lower one.

    Attributes:
        at: By k, the fraction of the true k nearest neighbors among the k
            found.
        score_error: For compressed vectors, the 95th percentile of the error of
            the returned scores.
        queries: Number of queries used for the measurement.
        rows: Number of images that were searched.
        source: The queries in words: those passed as `queries`, or a sample of
            the gallery. A graph is searched for the sample before it
            is added, because rows are linked to their neighbors.
    """

    at: dict[int, float]
    score_error: float
    queries: int
    rows: int
    source: str = ROWS  # Indexes of former versions have no other.

    def __str__(self) -> str:
        values = [f"recall@{k} {value:.4f}" for k, value in self.at.items()]
        return f"{', '.join(values)}; {self.meaning}"

    @property
    def meaning(self) -> str:
        """The queries that it holds for, in words."""
        return f"for queries like these: {self.queries} {self.source}"


class Filling:
    """Adds the rows 0 to N − 1 to an engine, and measures its recall.

    A row of a graph is linked to its neighbors, so a search for it finds more
    of them than one for a new query. Therefore some rows are left out of a
    graph until they have been searched for. The hits of lists and codes do not
    depend on whether they hold the query.
    """

    def __init__(
        self, engine: Engine, count: int, queries: FloatArray | None
    ) -> None:
        self._engine, self._count, self._queries = engine, count, queries
        rest = int(MAX_LEFT_OUT_SHARE * count) if engine.is_graph else 0
        size = min(MAX_QUERIES, rest or count) if queries is None else 0
        rng = np.random.default_rng(0)
        self._rows = np.sort(rng.choice(count, size, replace=False))
        self._left_out = self._rows[: size if rest else 0]
        self._next = 0

    def add(self, x: FloatArray) -> None:
        """Adds the next rows, (n, D)."""
        ids = np.arange(self._next, self._next + len(x))
        self._next += len(x)
        is_in = ~np.isin(ids, self._left_out)
        self._engine.add(x[is_in], ids[is_in])

    def finish(self, read: Callable[[], Iterable[FloatArray]]) -> Recall | None:
        """Measures recall and adds the rest; None for fewer than 2 rows.

        `read` reads all rows, (N, D) float32, once more, a part at a time.
        """
        engine = self._engine
        x = take_rows(read(), self._rows, engine.dim)
        recall = None if self._count < 2 else self._measure(read, x)
        if len(self._left_out):
            engine.add(x, self._rows)
            engine.sort()
        return recall

    def _measure(
        self, read: Callable[[], Iterable[FloatArray]], x: FloatArray
    ) -> Recall:
        engine, metric = self._engine, self._engine.metric
        queries = x if self._queries is None else self._queries
        ids, source = np.full(len(queries), NO_ID - 1), OWN_QUERIES
        if len(self._rows):
            ids, source = self._rows, LEFT_OUT if len(self._left_out) else ROWS
        # A row that is in the index finds itself, which does not count.
        more = int(source == ROWS)
        k = min(NUM_NEIGHBORS, len(engine) - more)
        parts = _with_ids(read(), self._left_out)
        kind = engine.index.metric_type
        exact = nearest_of_parts(parts, queries, k + more, kind)[1]
        scores, hits = engine.search(queries, k + more)
        pairs = [
            (a[a != row][:k], b[b != row][:k])
            for a, b, row in zip(exact, hits, ids, strict=True)
        ]
        at = {
            n: float(np.mean([np.isin(a[:n], b[:n]).mean() for a, b in pairs]))
            for n in sorted({1, k})
        }
        row, column = np.nonzero(hits >= 0)
        hit_rows = hits[row, column]
        true = metric.pairs(
            queries[row], take_rows(read(), hit_rows, engine.dim)
        )
        errors = np.abs(true - scores[row, column])
        error = float(np.quantile(errors, 0.95)) if len(errors) else 0.0
        return Recall(at, error, len(queries), len(engine), source)


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
    parts: Iterable[FloatArray], left_out: Rows
) -> Iterator[tuple[FloatArray, Rows]]:
    first = 0
    for part in parts:
        ids = np.arange(first, first + len(part))
        first += len(part)
        is_in = ~np.isin(ids, left_out)
        yield part[is_in], ids[is_in]
