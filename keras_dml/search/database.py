"""DatabaseGallery: searching rows in a database."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_dml.evaluation.ranks import exact
from keras_dml.search.database_rows import DatabaseRows
from keras_dml.search.filters import Where, check_column, conditions
from keras_dml.search.hits import NONE
from keras_dml.search.metrics import COSINE
from keras_dml.search.table import Found
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

_LAST = -1e300
"""The score of rows not found, above that of rows not fetched."""

_AT_A_TIME = 100
"""Queries of one search."""

_KINDS: dict[type, str] = {str: "text", list: "list"}


class DatabaseGallery(DatabaseRows):
    """Rows in a database, where searches with "Flat" are exact.

    The database finds candidates, whose scores are computed from their vectors
    in float64. Candidates are fetched until none can be missing.
    """

    def where(self, where: Where) -> Rows:
        """Ids of the rows that pass a filter, ascending."""
        passing = self._expression(where)
        found = self._read(self._ranges(passing), {})
        ids = [np.empty(0, np.int64), *(block.ids for block in found)]
        return np.sort(np.concatenate(ids))

    def nearest(
        self, queries: FloatArray, k: int, where: Where | None = None
    ) -> tuple[FloatArray, Rows]:
        """The k nearest rows of each query; see `Gallery.nearest`.

        Scores are computed from the vectors, in float64. If more rows have
        equal scores than the database returns, the database chooses among them.
        """
        if k > self.place.most:
            raise ValueError(
                f"`k` of Index.search must be at most {self.place.most:,} in "
                f"{self.place.engine}. Received: k={k}. Use a smaller `k`, or "
                "an index in a folder or in LanceDB, which have no such limit."
            )
        scores = np.full((len(queries), k), -np.inf)
        ids = np.full((len(queries), k), NONE)
        # There may be fewer rows, which a search shows.
        limit = min(self.state.next_id, self.place.most)
        if limit and len(queries):
            passing = self._expression(where)
            found = self._nearest(queries, min(k, limit), passing, limit)
            is_hit = found[1] != NONE
            width = slice(found[1].shape[1])
            scores[:, width] = np.where(is_hit, found[0], -np.inf)
            ids[:, width] = found[1]
        return self.metric.outer(scores), ids

    def above(
        self, queries: FloatArray, threshold: float, where: Where | None = None
    ) -> tuple[Rows, FloatArray, Rows]:
        """All rows whose scores reach a threshold, by query."""
        none = np.empty(0, np.int64)
        parts = [(none, np.empty(0, np.float32), none)]
        passing = self._expression(where)
        bound = self.metric.bound(threshold)
        bound -= 2.0**-22 * abs(bound) + self._tolerance(queries).max(initial=0)
        for row, query in enumerate(queries):
            ids, _, vectors = self.place.within(
                query, float(bound), passing, self.kind
            )
            scores = self._exact(query, vectors)
            outer = self.metric.outer(scores)
            kept = outer.astype(np.float64) >= threshold
            order = np.lexsort((ids[kept], -scores[kept]))
            which = np.full(int(kept.sum()), row)
            parts.append((which, outer[kept][order], ids[kept][order]))
        which, outer, ids = (
            np.concatenate(x) for x in zip(*parts, strict=True)
        )
        return which, outer, ids

    def _expression(self, where: Where | None) -> str:
        """A filter in the database's language; empty if there is no filter."""
        if where is None:
            return ""
        if not isinstance(where, Mapping):
            raise ValueError(
                f"`where` of an Index in {self.place.engine} must be "
                f"conditions by column. Received: a {type(where).__name__}. "
                "Functions and masks require an index in a folder."
            )
        types = self.state.types

        def kinds(name: Any) -> frozenset[str]:
            check_column(name, types)
            return frozenset(_KINDS.get(x, "number") for x in types[name])

        parts = [
            self.place.expression(name, sign, wanted, types[name])
            for name, sign, wanted in conditions(where, kinds)
        ]
        return " and ".join(parts)

    def _nearest(
        self, queries: FloatArray, k: int, passing: str, limit: int
    ) -> tuple[FloatArray, Rows]:
        """Scores in float64 and ids, as from `exact.nearest`.

        Missing results have the id -1.
        """
        seen: dict[int, Found] = {}
        share = self._share(passing)

        def candidates(rows: Rows, count: int) -> tuple[FloatArray, Rows]:
            found: list[Found] = []
            for part in blocks(len(rows), _AT_A_TIME):
                some = queries[rows[part]]
                found += self.place.nearest(
                    some, count, passing, self.kind, share
                )
            for row, one in zip(rows.tolist(), found, strict=True):
                seen[row] = one
            return _padded(found, count)

        def score(rows: Rows, ids: Rows) -> FloatArray:
            scores = np.full(ids.shape, _LAST)
            for place, row in enumerate(rows.tolist()):
                vectors = seen[row][2]
                exactly = self._exact(queries[row], vectors)
                scores[place, : len(vectors)] = exactly
            return scores

        if not self.is_exact:
            rows = np.arange(len(queries))
            _, ids = candidates(rows, k)
            return exact.ranked(score(rows, ids), ids)
        tolerance = self._tolerance(queries)
        return exact.nearest(candidates, score, tolerance, k, limit)

    def _share(self, passing: str) -> float:
        """Fraction of rows that pass, if the search effort depends on it."""
        if self.is_exact or not passing:
            return 1.0
        return max(1, self.place.count(passing)) / max(1, len(self))

    def _exact(self, query: FloatArray, vectors: FloatArray) -> FloatArray:
        """Inner scores of a query and n vectors, (n,) float64."""
        if not len(vectors):
            return np.empty(0)
        labels = np.arange(len(vectors))[None]
        return self.metric.exact(query[None], vectors, labels)[0]

    def _tolerance(self, queries: FloatArray) -> FloatArray:
        """Error bounds of approximate scores, (Q,)."""
        is_unit = self.metric.name == COSINE
        longest = 1.0 if is_unit else self.state.longest
        # Some databases return 1 − x·y, rounded.
        return self.metric.tolerance(queries, longest) + 2.0**-22


def _padded(found: list[Found], count: int) -> tuple[FloatArray, Rows]:
    """The results of each query, padded to (Q, count) each."""
    scores = np.full((len(found), count), -np.inf)
    ids = np.full((len(found), count), NONE)
    for row, (some, rough, _) in enumerate(found):
        scores[row, : len(some)], ids[row, : len(some)] = rough, some
    return scores, ids
