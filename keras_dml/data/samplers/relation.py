"""RelationSampler: batches of given pairs or triplets."""

import logging
from collections import deque
from itertools import islice
from typing import Literal, TypeAlias

import numpy as np

from keras_dml.data.hashing import equal_contents
from keras_dml.data.relations import Relations
from keras_dml.data.samplers.base import Sampler
from keras_dml.data.samplers.planning import balanced_counts, spread
from keras_dml.utils.types import Count, Rows

UnknownRelation: TypeAlias = Literal["ignore", "negative"]

logger = logging.getLogger(__name__)

_TRIES_PER_SLOT = 8
"""Number of tuples that are tried per slot of a batch."""

_TIME_LIMIT = 60
"""Seconds to search for a batch without common examples."""


class RelationSampler(Sampler):
    """Batches of given pairs or triplets, see `PairSet`.

    A batch is `[anchors, partners]` of T pairs, or `[anchors, positives,
    negatives]` of T triplets. Its labels are the relation between every two
    examples, which all losses on pairs and triplets accept: 1 for positive
    pairs, 0 for negative pairs, −1 for unknown. Tuples are drawn equally
    often, to within one draw.

    A known relation applies wherever two examples meet in a batch, even if
    they belong to different tuples there.

    Args:
        relations: A `PairSet` or `TripletSet`.
        tuples_per_batch: Number of pairs or triplets in a batch, T.
        others: How to treat two examples without a known relation: "ignore",
            or "negative" for in-batch negatives, if examples that are not
            given as positive pairs are rarely positive. See `transitive` of
            `PairSet` and `no_duplicates` for examples that are.
        seed: Seed of all plans.
        steps_per_epoch: Number of batches per epoch. By default the number of
            complete batches that the tuples form.
        no_duplicates: Whether no example of a batch belongs to two of its
            tuples, nor has the same contents as one of another tuple. So a
            second positive of an anchor is never its in-batch negative. Tuples
            are then drawn about equally often, unless hardly any batch can be
            filled, which is logged.

    Raises:
        ValueError: If there are fewer tuples than a batch requires, with
            `no_duplicates` fewer without common examples, or an argument is
            not as described.

    Also known as:
        - pytorch-metric-learning: `FixedSetOfTriplets` draws its triplets from
          classes once; a `TripletSet` takes any.
        - sentence-transformers: data sets with the columns (anchor, positive)
          and (anchor, positive, negative); `no_duplicates` is
          `BatchSamplers.NO_DUPLICATES`.

    Example:

    ```python
    pairs = PairSet(images, clicked)
    sampler = RelationSampler(pairs, tuples_per_batch=64, others="negative")
    model.fit(pipeline(images, sampler, size=48), epochs=4)
    ```
    """

    def __init__(
        self,
        relations: Relations,
        tuples_per_batch: Count = 32,
        others: UnknownRelation = "ignore",
        seed: int = 0,
        steps_per_epoch: Count | None = None,
        no_duplicates: bool = False,
    ) -> None:
        if not isinstance(relations, Relations):
            raise ValueError(
                "`relations` of RelationSampler must be a PairSet or a "
                f"TripletSet. Received: {type(relations).__name__}."
            )
        self.relations = relations
        self.tuples_per_batch = tuples_per_batch
        if tuples_per_batch > len(relations):
            raise ValueError(
                "`tuples_per_batch` of RelationSampler must not exceed the "
                "number of tuples. Received: "
                f"tuples_per_batch={tuples_per_batch} for {relations!r}."
            )
        self.others = others
        self.no_duplicates = no_duplicates
        if no_duplicates:
            contents = equal_contents(relations.examples)
            self._contents = contents[relations.rows]
            self._possible_batch = self._full_batch()
        super().__init__(
            # Each is a class of its own; `batch_labels` has the relations.
            labels=np.arange(len(relations.examples)),
            batch_size=tuples_per_batch * relations.rows.shape[1],
            seed=seed,
            steps_per_epoch=len(relations) // tuples_per_batch
            if steps_per_epoch is None
            else steps_per_epoch,
        )

    def plan(self, epoch: int) -> Rows:
        """Rows of every batch, (steps, width · T)."""
        slots = self.steps * self.tuples_per_batch
        counts, _ = balanced_counts(
            len(self.relations), slots, epoch, (self.seed, 1)
        )
        rng = np.random.default_rng([self.seed, 0, epoch])
        tuples = spread(counts, self.steps, rng)
        if self.no_duplicates:
            tuples = self._without_duplicates(tuples.ravel(), rng)
        rows = self.relations.rows[tuples]
        return rows.transpose(0, 2, 1).reshape(self.steps, self.batch_size)

    def _without_duplicates(
        self, tuples: Rows, rng: np.random.Generator
    ) -> Rows:
        """Batches of tuples without common contents, (steps, T).

        Tuples that do not fit into a batch wait for a later one; a batch that
        these cannot fill gets random ones.
        """
        waiting = deque(tuples.tolist())
        batches = []
        for _ in range(self.steps):
            batch: list[int] = []
            later: list[int] = []
            used: set[int] = set()
            tries = _TRIES_PER_SLOT * self.tuples_per_batch
            while waiting and tries and len(batch) < self.tuples_per_batch:
                tries -= 1
                number = waiting.popleft()
                (batch if self._fits(number, used) else later).append(number)
            waiting.extendleft(reversed(later))
            if len(batch) < self.tuples_per_batch:
                candidates = rng.permutation(len(self.relations)).tolist()
                fitting = (x for x in candidates if self._fits(x, used))
                batch += islice(fitting, self.tuples_per_batch - len(batch))
            # One after the other, tuples of a possible batch replace those that
            # they overlap with, until the batch is full.
            for number in rng.permutation(self._possible_batch).tolist():
                if len(batch) == self.tuples_per_batch:
                    break
                clashes = [x for x in batch if self._overlap(x, number)]
                if number not in clashes:
                    batch = [*(x for x in batch if x not in clashes), number]
                    waiting.extendleft(clashes)
            batches.append(batch)
        return np.array(batches)

    def _full_batch(self) -> list[int]:
        """A batch of tuples without common contents."""
        from scipy.optimize import LinearConstraint, milp
        from scipy.sparse import csr_array

        used: set[int] = set()
        size, total = self.tuples_per_batch, len(self.relations)
        fitting = (x for x in range(total) if self._fits(x, used))
        batch = [*islice(fitting, size)]
        if len(batch) == size:
            return batch
        # Finds the largest set of tuples in which no content occurs twice.
        kinds, first = np.unique(
            np.sort(self._contents, axis=1), axis=0, return_index=True
        )
        uses = csr_array((int(kinds.max()) + 1, len(kinds)), dtype=np.int8)
        for column in kinds.T:
            one = np.ones(len(kinds), np.int8), (column, np.arange(len(kinds)))
            uses = uses.maximum(csr_array(one, shape=uses.shape))
        result = milp(
            -np.ones(len(kinds)),
            integrality=np.ones(len(kinds)),
            bounds=(0, 1),
            constraints=LinearConstraint(uses, ub=1),
            options={"time_limit": _TIME_LIMIT},
        )
        if result.x is not None:
            batch = first[result.x > 0.5].tolist()
        if len(batch) < size:
            searched = (
                "" if result.status == 0 else f", in {_TIME_LIMIT} seconds"
            )
            raise ValueError(
                "`tuples_per_batch` of RelationSampler must be at most the "
                "number of tuples without common examples, because of "
                f"no_duplicates=True. Received: tuples_per_batch={size} for "
                f"{self.relations!r}, of which {len(batch)} have none in "
                f"common{searched}. Use tuples_per_batch={len(batch)} or "
                "less, or no_duplicates=False."
            )
        logger.warning(
            "Batches of %d tuples leave little choice, because at most %d of "
            "%d have no examples in common: some tuples are drawn rarely or "
            "never. Use a smaller tuples_per_batch.",
            size, len(batch), total,
        )  # fmt: skip
        return batch

    def _overlap(self, first: int, second: int) -> bool:
        pair = (set(self._contents[x].tolist()) for x in (first, second))
        return not set.isdisjoint(*pair)

    def _fits(self, number: int, used: set[int]) -> bool:
        """Whether a tuple has no used content; its content is used then."""
        contents = set(self._contents[number].tolist())
        if contents & used:
            return False
        used |= contents
        return True

    def batch_labels(self, rows: Rows) -> Rows:
        """Relation between every two examples of a batch, (B, B)."""
        unknown = 0 if self.others == "negative" else -1
        return self.relations.between(rows, unknown).astype(np.int64)
