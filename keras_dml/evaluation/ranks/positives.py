"""Ranked positives: the relevant images of each query, and their predecessors.

Example: one query with three positives, listed from the worst to the best,
and five images of other classes.

    slot           0     1     2
    score         .2    .5    .9
    gallery row    7     2     4

    image          a     b     c     d     e
    score        .95    .7    .6    .5    .1
    gallery row    3     8     6     1     5

An image precedes a positive if its score is higher or, if they are equal, if
it comes earlier in the gallery. An image that precedes a positive precedes all
worse ones, so it is recorded only at the best positive that it precedes:
a at slot 2; b, c and d (equal, but row 1 is before row 2) at slot 1; e
nowhere. The recorded numbers are 0, 3, 1. The rank of a positive is 1, plus
the number of better positives, plus the numbers recorded at it and at better
ones:

    slot 2:  1 + 0 + 1           = 2
    slot 1:  1 + 1 + (3 + 1)     = 6
    slot 0:  1 + 2 + (0 + 3 + 1) = 7

which are their positions, counted from 1, in the ranking a 4 b c d 2 7 e. If a
metric requires ranks only up to 5, slots 1 and 0 exceed this limit as soon as
four images are recorded. Then only slot 2 matters, and images that score below
.9, the cutoff, need not be examined.
"""

from dataclasses import astuple, dataclass, fields

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.ranks.relevance import Positives
from keras_dml.utils.types import FloatArray, Rows

BEYOND_LIMIT = 2**62
"""Stands for the rank of a relevant image if it exceeds its limit."""

UNLIMITED = BEYOND_LIMIT - 1
"""The limit of a metric that requires all ranks."""

QUERY_STRIDE = 4.0
"""Distance between two neighboring queries in `Keys`.

Scores minus their offset lie between −1 and 1, so those of one query are at
least 2 away from those of the next.
"""


@dataclass(frozen=True)
class Limits:
    """Ranks up to which a metric requires exact values.

    Attributes:
        first: Limit for the nearest relevant image of a query.
        every: Limit for all relevant images.
        extra: Limit for all relevant images, added to their number R.
    """

    first: int = 0
    every: int = 0
    extra: int = -BEYOND_LIMIT

    def __or__(self, other: "Limits") -> "Limits":
        return Limits(*map(max, astuple(self), astuple(other)))

    def of_every(self, counts: Rows) -> Rows:
        """Returns each query's limit for all of its R = `counts` images."""
        return np.maximum(self.every, counts + self.extra)


@dataclass(frozen=True)
class Ranks:
    """Ranks of the relevant images of some queries.

    Attributes:
        queries: Queries that have a relevant image, (Q,).
        counts: Number of relevant images of each query, R, (Q,).
        ranks: Rank of each relevant image, (P,), counted from 1: one query
            after another, ascending within each; `BEYOND_LIMIT` if beyond the
            limit.
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
        # `reduceat` is wrong for empty queries, of which there are none.
        sums: FloatArray = np.add.reduceat(
            values.astype(np.float64), self.starts
        )
        return sums


@dataclass(frozen=True)
class Pairs:
    """Pairs of a query and a gallery image."""

    query: Rows  # (n,), numbered within the panel.
    item: Rows  # (n,), numbered within the gallery.
    score: FloatArray  # Score minus `Scores.offset`, (n,).
    tolerance: FloatArray  # Bound on the error of the score, (n,).

    def select(self, which: Rows | NDArray[np.bool_]) -> "Pairs":
        return Pairs(*(getattr(self, x.name)[which] for x in fields(self)))


class RankedPositives:
    """The relevant images of each query, from the worst to the best.

    The lists of all queries are concatenated; a slot is a position in the
    result. Each slot has a query (`owners`), an exact score (`scores`,
    ascending within a query) and a gallery image (`items`), all (P,). `starts`,
    (Q + 1,), has the first slot of each query and, at the end, P.

    Args:
        positives: The relevant images.
        exact: Their exact scores, (P,).
        limits: Ranks up to which they must be exact.
    """

    def __init__(
        self, positives: Positives, exact: FloatArray, limits: Limits
    ) -> None:
        # Of images with equal scores, one later in the gallery is worse.
        order = np.lexsort((-positives.items, exact, positives.owners))
        self.starts = positives.starts
        self.owners = positives.owners
        self.scores = exact[order]
        self.items = positives.items[order]
        gains = positives.gains
        self._gains = None if gains is None else gains[order]
        self._noted = np.zeros(len(order), np.int64)
        counts = positives.counts
        self._limits = np.repeat(limits.of_every(counts), counts)
        # The last slot of a list is the best.
        best = self.starts[1:][counts > 0] - 1
        self._limits[best] = np.maximum(self._limits[best], limits.first)

    def of(self, queries: slice) -> slice:
        """The slots of consecutive queries."""
        return slice(self.starts[queries.start], self.starts[queries.stop])

    def note(self, queries: slice, slots: Rows) -> None:
        """Records one image at each of `slots`, the best one it precedes."""
        span = self.of(queries)
        self._noted[span] += np.bincount(
            slots - span.start, minlength=span.stop - span.start
        )

    def advance(self, slots: Rows, pairs: Pairs, exact: FloatArray) -> Rows:
        """Returns the first slot that each image does not precede, (n,).

        Exact scores decide. The search for an image starts at `slots`, (n,): at
        a slot of its query that it precedes, or at the result itself. If an
        image precedes all, the result is the next query's first slot.
        """
        slots = slots.copy()
        ends = self.starts[pairs.query + 1]
        # Images that still move take one step in each round.
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

    def cutoffs(self, queries: slice) -> FloatArray:
        """Scores, (n,), below which an image changes no rank that matters.

        A cutoff is the score of the query's worst positive that matters. It is
        infinite if none does: the query then requires no more counting.
        """
        span = self.of(queries)
        # Where each query's list starts and ends, counted from `span`.
        starts = self.starts[queries] - span.start
        ends = self.starts[queries.start + 1 : queries.stop + 1] - span.start
        # Ranks only grow while images are recorded.
        matters = self._ranks(queries) <= self._limits[span]
        totals = np.concatenate([[0], np.cumsum(matters)])
        count = totals[ends] - totals[starts]
        # Better positives have lower ranks: those that matter are the last
        # `count` of the list. Index −1 is the infinity.
        scores = np.append(self.scores[span], np.inf)
        return scores[np.where(count > 0, ends - count, -1)]

    def ranks(self) -> Rows:
        """Ranks, ascending for each query, one query after another.

        A rank beyond its limit is `BEYOND_LIMIT`, as its count is incomplete.
        """
        ranks = self._ranks(slice(0, len(self.starts) - 1))
        ranks[ranks > self._limits] = BEYOND_LIMIT
        return ranks[self._best_first()]

    def gains(self) -> FloatArray | None:
        """Gains in the order of `ranks`; None if all are 1."""
        return None if self._gains is None else self._gains[self._best_first()]

    def _best_first(self) -> Rows:
        # Slot i of a list from a to b becomes a + b − 1 − i.
        mirrored = self.starts[self.owners] + self.starts[self.owners + 1]
        slots: Rows = mirrored - 1 - np.arange(len(self.items))
        return slots

    def _ranks(self, queries: slice) -> Rows:
        """Ranks by slot, from the images recorded so far."""
        span = self.of(queries)
        # totals[i] is the number of images recorded before slot i.
        totals = np.concatenate([[0], np.cumsum(self._noted[span])])
        ends = self.starts[self.owners[span] + 1] - span.start
        slots = np.arange(span.stop - span.start)
        # `ends − slots` is 1 plus the number of better positives.
        ranks: Rows = totals[ends] - totals[slots] + ends - slots
        return ranks


class Keys:
    """The scores of all positives of a block as one ascending list.

    A key is a score plus `QUERY_STRIDE` times its query's number in the block.
    So a single search finds, for images of many queries at once, between which
    positives of their own query they lie. With positives .2, .5, .9 of query 0
    and −.3, .4 of query 1:

        slot      0    1    2    3    4
        key      .2   .5   .9  3.7  4.4

    An image that scores .1 for query 1 has the key 4.1. The first key above it
    is at slot 4, so it precedes slot 3 and is worse than slot 4. With a
    score of −.5, its key is 3.5, and the first slot above it is 3, where the
    list of query 1 starts: it precedes none. `offset` is the amount subtracted
    from scores.
    """

    def __init__(
        self, positives: RankedPositives, queries: slice, offset: float
    ) -> None:
        span = positives.of(queries)
        self._first_slot = span.start
        self._first_query = queries.start
        shift = QUERY_STRIDE * (positives.owners[span] - queries.start)
        keys = positives.scores[span] - offset + shift
        # With an infinity at both ends, every slot has two neighbors.
        self._keys = np.concatenate([[-np.inf], keys, [np.inf]])
        # Keys grow with the query's number, and so does their rounding error.
        largest = QUERY_STRIDE * (queries.stop - queries.start + 1)
        self._rounding = 4 * np.spacing(largest)

    def locate(self, pairs: Pairs) -> tuple[Rows, Rows]:
        """The first slot above each score, (n,), and which are uncertain, (m,).

        A score is uncertain if it is within its tolerance of a positive.
        """
        key = pairs.score + QUERY_STRIDE * (pairs.query - self._first_query)
        at = np.searchsorted(self._keys, key)
        tolerance = pairs.tolerance + self._rounding
        unsure = key - self._keys[at - 1] <= tolerance
        unsure |= self._keys[at] - key <= tolerance
        return at - 1 + self._first_slot, np.flatnonzero(unsure)

    def lower_bounds(self, pairs: Pairs) -> Rows:
        """The first slot that each true score might not exceed, (n,)."""
        key = pairs.score + QUERY_STRIDE * (pairs.query - self._first_query)
        key = key - pairs.tolerance - self._rounding
        return np.searchsorted(self._keys, key) - 1 + self._first_slot
