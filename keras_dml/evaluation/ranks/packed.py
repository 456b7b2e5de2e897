"""Ranks as small arrays, for a pipe or a file."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.ranks.ranked_positives import BEYOND
from keras_dml.evaluation.ranks.ranks import Ranks
from keras_dml.utils.types import FloatArray, Rows

_Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class PackedRanks:
    """The contents of `Ranks`, in the smallest sufficient integers.

    Attributes:
        queries, counts, labels, graded: See `Ranks`.
        ranks: 0 for ranks beyond their limit.
    """

    queries: _Integers
    counts: _Integers
    ranks: _Integers
    labels: Rows | None
    graded: FloatArray | None

    @classmethod
    def of(cls, ranks: Ranks) -> "PackedRanks":
        """Packs some ranks."""
        known = np.where(ranks.ranks == BEYOND, 0, ranks.ranks)
        return cls(
            _small(ranks.queries),
            _small(ranks.counts),
            _small(known),
            ranks.labels,
            ranks.graded,
        )

    def unpacked(self) -> Ranks:
        """Unpacks the ranks."""
        ranks = self.ranks.astype(np.int64)
        ranks[ranks == 0] = BEYOND
        return Ranks(
            self.queries.astype(np.int64),
            self.counts.astype(np.int64),
            ranks,
            self.labels,
            self.graded,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The existing arrays, by name."""
        return {name: x for name, x in vars(self).items() if x is not None}

    @classmethod
    def of_arrays(cls, arrays: dict[str, NDArray[Any]]) -> "PackedRanks":
        """Packed ranks with these arrays."""
        return cls(*(arrays.get(field.name) for field in fields(cls)))  # type: ignore[arg-type]


def _small(x: _Integers) -> _Integers:
    return x.astype(np.min_scalar_type(int(x.max(initial=0))))
