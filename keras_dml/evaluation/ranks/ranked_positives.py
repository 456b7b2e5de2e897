"""The relevant images of each query, in order, and what precedes them."""

from dataclasses import dataclass

import numpy as np

from keras_dml.evaluation.ranks.relevance import Positives
from keras_dml.evaluation.ranks.tile import Pairs
from keras_dml.utils.types import FloatArray, Rows

BEYOND = 2**62
"""The rank of a relevant image that is known to be beyond its limit."""

UNLIMITED = BEYOND - 1
"""The limit of a metric that needs all ranks."""

STRIDE = 4.0
"""Distance between neighbouring queries' scores, all below 1, in `Keys`."""


@dataclass(frozen=True)
class Limits:
    """Ranks up to which a metric needs them exactly; beyond is beyond.

    Attributes:
        first: Limit for the nearest relevant image of a query.
        every: Limit for all relevant images.
        extra: Limit for all, relative to their number R: R + extra.
    """

    first: int = 0
    every: int = 0
    extra: int | None = None

    def __or__(self, other: "Limits") -> "Limits":
        extras = [x.extra for x in (self, other) if x.extra is not None]
        return Limits(
            max(self.first, other.first),
            max(self.every, other.every),
            max(extras, default=None),
        )

    def of_every(self, counts: Rows) -> Rows:
        """Limit for all relevant images of queries with R = `counts`."""
        if self.extra is None:
            return np.full(len(counts), self.every, np.int64)
        return np.maximum(self.every, counts + self.extra)


class Slots:
    """The relevant images of each query, from the worst to the best.

    An image that precedes a slot precedes all slots of the query that are
    worse, so it is noted only at the best slot that it precedes.

    Args:
        positives: The relevant images.
        exact: Their exact scores, (P,).
        limits: Ranks up to which they must be exact.
    """

    def __init__(
        self, positives: Positives, exact: FloatArray, limits: Limits
    ) -> None:
        order = np.lexsort((-positives.items, exact, positives.owners))
        self.starts = positives.starts
        self.owners = positives.owners
        self.scores = exact[order]
        self.items = positives.items[order]
        self._preceding = np.zeros(len(order), np.int64)
        self._limits = limits.of_every(positives.counts)
        self._limits_of_best = np.maximum(self._limits, limits.first)

    def of(self, queries: slice) -> slice:
        """The slots of consecutive queries."""
        return slice(self.starts[queries.start], self.starts[queries.stop])

    def note(self, queries: slice, slots: Rows) -> None:
        """Notes images at the best slots of `queries` that they precede."""
        own = self.of(queries)
        self._preceding[own] += np.bincount(
            slots - own.start, minlength=own.stop - own.start
        )

    def note_best(self, queries: Rows, counts: Rows) -> None:
        """Notes numbers of images that precede all slots of queries.

        Args:
            queries: Different queries, (n,).
            counts: (n,), 0 for a query without slots.
        """
        noted = counts > 0
        self._preceding[self.starts[queries[noted] + 1] - 1] += counts[noted]

    def advance(self, slots: Rows, pairs: Pairs, exact: FloatArray) -> Rows:
        """Moves each image up to the first slot that it does not precede.

        Args:
            slots: A slot of its query that is no better than that, (n,).
            pairs: The queries and images.
            exact: Their exact scores, (n,).

        Returns:
            (n,), the next query's first slot if it precedes all.
        """
        slots = slots.copy()
        ends = self.starts[pairs.query + 1]
        moving = np.flatnonzero(slots < ends)
        while len(moving):
            at, score = slots[moving], exact[moving]
            precedes = (score > self.scores[at]) | (
                (score == self.scores[at])
                & (pairs.item[moving] < self.items[at])
            )
            moving = moving[precedes]
            slots[moving] += 1
            moving = moving[slots[moving] < ends[moving]]
        return slots

    def lowest(self, queries: slice) -> tuple[FloatArray, Rows]:
        """The worst slots whose ranks still matter.

        Returns:
            Their scores, (n,), infinity where none does: such a query needs
            no more counting. And the number of slots that matter, (n,).
        """
        own = self.of(queries)
        ends = self.starts[queries.start + 1 : queries.stop + 1] - own.start
        # Better slots have lower ranks, so those that matter are the last.
        matters = self._ranks(queries) <= self._limits_of_slots(queries)
        totals = np.concatenate([[0], np.cumsum(matters)])
        starts = self.starts[queries] - own.start
        count = totals[ends] - totals[starts]
        scores = np.append(self.scores[own], np.inf)
        return scores[np.where(count > 0, ends - count, -1)], count

    def ranks(self) -> Rows:
        """Ranks, ascending for each query, one query after another.

        Those beyond their limit are `BEYOND`: what precedes them has not
        been counted to the end.
        """
        everyone = slice(0, len(self.starts) - 1)
        ranks = self._ranks(everyone)
        ranks[ranks > self._limits_of_slots(everyone)] = BEYOND
        mirrored = self.starts[self.owners] + self.starts[self.owners + 1]
        return ranks[mirrored - 1 - np.arange(len(ranks))]

    def _ranks(self, queries: slice) -> Rows:
        own = self.of(queries)
        totals = np.concatenate([[0], np.cumsum(self._preceding[own])])
        ends = self.starts[self.owners[own] + 1] - own.start
        slots = np.arange(own.stop - own.start)
        ranks: Rows = totals[ends] - totals[slots] + ends - slots
        return ranks

    def _limits_of_slots(self, queries: slice) -> Rows:
        own = self.of(queries)
        limits = self._limits[self.owners[own]]
        ends = self.starts[queries.start + 1 : queries.stop + 1]
        filled = ends > self.starts[queries]
        best = ends[filled] - 1 - own.start
        limits[best] = self._limits_of_best[queries][filled]
        return limits


class Keys:
    """All slots of a block of queries as one ascending list of numbers.

    One search in it finds the place of any score of any query.

    Args:
        slots: The slots of all queries.
        queries: The block.
        offset: What scores were lessened by.
    """

    def __init__(self, slots: Slots, queries: slice, offset: float) -> None:
        own = slots.of(queries)
        self._first_slot = own.start
        self._first_query = queries.start
        shift = STRIDE * (slots.owners[own] - queries.start)
        keys = slots.scores[own] - offset + shift
        # Between infinities, so that every place has two neighbours.
        self._keys = np.concatenate([[-np.inf], keys, [np.inf]])
        largest = STRIDE * (queries.stop - queries.start + 1)
        self._rounding = 4 * np.spacing(largest)

    def locate(self, pairs: Pairs) -> tuple[Rows, Rows]:
        """The first slot above each score, and which of them are unsure.

        Returns:
            Slots, (n,), and the places in it, (m,), where a slot is
            nearer to the score than its error.
        """
        key = self._key(pairs)
        at = np.searchsorted(self._keys, key)
        tolerance = pairs.tolerance + self._rounding
        unsure = key - self._keys[at - 1] <= tolerance
        unsure |= self._keys[at] - key <= tolerance
        return at - 1 + self._first_slot, np.flatnonzero(unsure)

    def locate_lowest(self, pairs: Pairs) -> Rows:
        """The first slot that each true score may not exceed, (n,)."""
        key = self._key(pairs) - pairs.tolerance - self._rounding
        return np.searchsorted(self._keys, key) - 1 + self._first_slot

    def _key(self, pairs: Pairs) -> FloatArray:
        key: FloatArray = pairs.score + STRIDE * (
            pairs.query - self._first_query
        )
        return key
