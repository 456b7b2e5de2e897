"""Hits: the results of a search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dml.search.engine import COSINE, NO_ID, MetricName
from keras_dml.search.rows import Key, RowTable
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.types import FloatArray, Rows

if TYPE_CHECKING:
    import pandas

_SHOWN_QUERIES, _SHOWN_HITS = 5, 3


@dataclass(frozen=True)
class Hit:
    """A gallery row found by a search.

    Attributes:
        id: Its id in the index.
        score: Its similarity to the query, in the metric of the index.
        is_match: Whether the score reaches the threshold; None without a
            threshold.
        row: Its columns, such as path and label.
        key: Its key; its id if the rows of the index have no keys.
    """

    id: int
    score: float
    is_match: bool | None
    row: dict[str, Any]
    key: Key


@dataclass(eq=False, repr=False)
class Hits(Sequence[list[Hit]]):
    """The nearest images for each query, nearest first.

    Item `i` is the list of hits for query `i`; it is shorter than `k` if fewer
    were found.

    Attributes:
        scores: Similarities, (Q, k) float32, descending; -inf for missing hits.
        ids: Ids of rows of the index, (Q, k) int64; -1 for missing hits. Hits
            with equal scores are in the order of the rows.
        threshold: The score from which a hit counts as a match; None without a
            threshold.
        metric: The metric of the scores: "cosine", "dot", or "euclidean", whose
            scores are negative distances.
        meaning: The share of queries, or of pairs, that reaches the threshold,
            in words; empty unless it is the calibrated one.
    """

    scores: FloatArray
    ids: Rows
    _table: RowTable
    threshold: float | None
    metric: MetricName = COSINE
    meaning: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, query: Any) -> Any:
        if isinstance(query, slice):
            return [self[i] for i in range(*query.indices(len(self)))]
        is_hit = self.ids[query] != NO_ID
        ids, scores = self.ids[query][is_hit], self.scores[query][is_hit]
        keys, threshold = self._table.keys_of(ids), self.threshold
        hits = zip(ids.tolist(), scores.tolist(), keys, strict=True)
        return [
            Hit(
                id=i,
                score=score,
                is_match=None if threshold is None else score >= threshold,
                row=self._table.row(i),
                key=key,
            )
            for i, score, key in hits
        ]

    def __repr__(self) -> str:
        counts = (self.ids != NO_ID).sum(axis=1)
        lines = [f"Hits of {len(self):,} queries, {counts.sum():,} in all:"]
        for query, hits in enumerate(self[:_SHOWN_QUERIES]):
            texts = [f"{x.key!r} ({x.score:.4f})" for x in hits[:_SHOWN_HITS]]
            texts += ["…"] if len(hits) > _SHOWN_HITS else []
            lines.append(f"  {query}: {', '.join(texts) or 'none'}")
        lines += ["  …"] if len(self) > _SHOWN_QUERIES else []
        return "\n".join(lines)

    @property
    def keys(self) -> list[list[Key]]:
        """Keys of the hits for each query, nearest first."""
        return [self._table.keys_of(ids[ids != NO_ID]) for ids in self.ids]

    @property
    def matches(self) -> list[Hit | None]:
        """The nearest image for each query, or None if it is not a match."""
        if self.threshold is None:
            raise ValueError(
                "`matches` of Hits requires a threshold. Received: hits of a "
                "search without one. Use Index.calibrate, or pass a "
                "`threshold` to Index.search."
            )
        return [hits[0] if hits and hits[0].is_match else None for hits in self]

    def to_dict(self) -> dict[str, list[Any]]:
        """All hits as a table: columns by name, as lists of equal length.

        Returns:
            The columns "query", the query's number, "rank", from 1, "key",
            "score" and "is_match", followed by the columns of the index. If one
            of those has the same name, it is called "row.query", and so on.
        """
        titles = ["query", "rank", "key", "score", "is_match"]
        hits = [
            (query, rank, x.key, x.score, x.is_match, *x.row.values())
            for query, its_hits in enumerate(self)
            for rank, x in enumerate(its_hits, 1)
        ]
        names = self._table.columns
        titles += [f"row.{x}" if x in titles else x for x in names]
        columns = zip(*hits, strict=True) if hits else ((),) * len(titles)
        return dict(zip(titles, map(list, columns), strict=True))

    def to_dataframe(self) -> "pandas.DataFrame":
        """The table of `to_dict` as a pandas DataFrame.

        Raises:
            ImportError: If pandas is not installed.
        """
        frames = import_extra("Hits.to_dataframe", "pandas", "pandas")
        return frames.DataFrame(self.to_dict())


def without_self(
    self_ids: Rows, scores: FloatArray, ids: Rows
) -> tuple[FloatArray, Rows]:
    """Removes each query's own row from its hits, or else the last hit."""
    is_own = ids == self_ids[:, None]
    scores[is_own], ids[is_own] = -np.inf, NO_ID
    # Removed hits move to the end; the others keep their order.
    order = np.argsort(is_own, axis=1, kind="stable")[:, :-1]
    return (
        np.take_along_axis(scores, order, axis=1),
        np.take_along_axis(ids, order, axis=1),
    )


def pad_hits(
    count: int, which: Rows, scores: FloatArray, ids: Rows
) -> tuple[FloatArray, Rows]:
    """Hits of a range search as arrays by query, (Q, largest number)."""
    counts = np.bincount(which, minlength=count)
    shape = count, int(counts.max(initial=0))
    starts = np.cumsum(counts) - counts
    position = which, np.arange(len(which)) - starts[which]
    arrays = np.full(shape, -np.inf, np.float32), np.full(shape, NO_ID)
    arrays[0][position], arrays[1][position] = scores, ids
    return arrays
