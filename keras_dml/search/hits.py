"""Hits: what a search found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keras_dml.search.rows import RowTable
from keras_dml.utils.types import FloatArray, Rows

NONE = -1
"""The id where there is no hit."""


@dataclass(frozen=True)
class Hit:
    """An image of the gallery that was found.

    Attributes:
        id: Its row in the index.
        score: Its cosine similarity to the query.
        is_match: Whether that reaches the threshold; None without one.
        row: Its columns: path, label, …
    """

    id: int
    score: float
    is_match: bool | None
    row: dict[str, Any]


@dataclass(eq=False, repr=False)
class Hits(Sequence[list[Hit]]):
    """The nearest images of each query, nearest first.

    Item `i` is the list of the hits of query `i`; it is shorter than `k`
    where fewer were found.

    Attributes:
        scores: Cosine similarities, (Q, k) float32, descending; -inf where
            there is no hit.
        ids: Rows of the index, (Q, k) int64; -1 where there is no hit.
            Equal scores are in the order of the rows.
        threshold: The score from which a hit is a match; None without one.
    """

    scores: FloatArray
    ids: Rows
    _table: RowTable
    threshold: float | None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, query: Any) -> Any:
        if isinstance(query, slice):
            return [self[i] for i in range(*query.indices(len(self)))]
        ids, scores = self.ids[query].tolist(), self.scores[query].tolist()
        least = self.threshold
        return [
            Hit(
                id=i,
                score=score,
                is_match=None if least is None else score >= least,
                row=self._table.row(i),
            )
            for i, score in zip(ids, scores, strict=True)
            if i != NONE
        ]

    @property
    def matches(self) -> list[Hit | None]:
        """The nearest image of each query, or None for no match."""
        if self.threshold is None:
            raise ValueError(
                "`matches` of Hits need a threshold. Received: a search "
                "without one. Calibrate the index, or give Index.search a "
                "`threshold`."
            )
        return [hits[0] if hits and hits[0].is_match else None for hits in self]
