"""Ranks of the relevant images, which all retrieval metrics are made from."""

from dataclasses import dataclass

import numpy as np

from keras_dml.utils.types import FloatArray, Rows


@dataclass(frozen=True)
class Ranks:
    """Ranks of the relevant images of some queries.

    Attributes:
        queries: Queries that have a relevant image, (Q,).
        counts: Number of relevant images of each, R, (Q,).
        ranks: From 1, ascending for each query, one query after another;
            `BEYOND` where beyond the limit, (P,).
        labels: Class of each query, (Q,); of a query with several labels
            a number for the set of them.
        graded: How much each relevant image counts, (P,), where some
            count more than others; see `gains`.
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
        """How much each relevant image counts, (P,): 1 unless graded."""
        if self.graded is None:
            return np.ones(len(self.ranks))
        return self.graded

    def sum(self, values: np.ndarray) -> FloatArray:
        """Sums of values for each relevant image, (P,), by query, (Q,)."""
        # No query is empty, which `reduceat` would get wrong.
        sums: FloatArray = np.add.reduceat(
            values.astype(np.float64), self.starts
        )
        return sums
