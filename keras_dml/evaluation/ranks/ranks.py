"""Ranks of the relevant images, from which retrieval metrics are computed."""

from dataclasses import dataclass

import numpy as np

from keras_dml.utils.types import FloatArray, Rows


@dataclass(frozen=True)
class Ranks:
    """Ranks of the relevant images of some queries.

    Attributes:
        queries: Queries that have a relevant image, (Q,).
        counts: Number of relevant images of each query, R, (Q,).
        ranks: From 1, ascending for each query, one query after another;
            `BEYOND` if beyond the limit, (P,).
        labels: Class of each query, (Q,); with several labels per query, a
            number for the set of labels.
        graded: Gain of each relevant image, (P,), if gains differ; see
            `gains`.
    """

    queries: Rows
    counts: Rows
    ranks: Rows
    labels: Rows | None = None
    graded: FloatArray | None = None

    @property
    def starts(self) -> Rows:
        """Where the ranks of each query start, (Q,)."""
        return np.cumsum(self.counts) - self.counts

    @property
    def first(self) -> Rows:
        """Rank of the nearest relevant image of each query, (Q,)."""
        return self.ranks[self.starts]

    @property
    def gains(self) -> FloatArray:
        """Gain of each relevant image, (P,): 1 unless graded."""
        if self.graded is None:
            return np.ones(len(self.ranks))
        return self.graded

    def sum(self, values: np.ndarray) -> FloatArray:
        """Returns sums by query, (Q,), of values per relevant image, (P,)."""
        # No query is empty, which `reduceat` would get wrong.
        sums: FloatArray = np.add.reduceat(
            values.astype(np.float64), self.starts
        )
        return sums
