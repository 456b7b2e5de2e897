"""RelationSampler: batches of given pairs or triplets."""

from typing import Literal, TypeAlias

import numpy as np

from keras_dml.data.relations import Relations
from keras_dml.data.samplers.base import Sampler
from keras_dml.data.samplers.planning import balanced_counts, spread
from keras_dml.utils.arguments import check_choice, check_count
from keras_dml.utils.types import Count, Rows

Others: TypeAlias = Literal["ignore", "negative"]

OTHERS = ("ignore", "negative")


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
            given as positive pairs are rarely positive.
        seed: Seed of all plans.
        steps_per_epoch: Number of batches per epoch. By default the number of
            complete batches that the tuples form.

    Raises:
        ValueError: If there are fewer tuples than a batch requires, or an
            argument is not as described.

    Also known as:
        - pytorch-metric-learning: `FixedSetOfTriplets` draws its triplets from
          classes once; a `TripletSet` takes any.
        - sentence-transformers: data sets with the columns (anchor, positive)
          and (anchor, positive, negative).

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
        others: Others = "ignore",
        seed: int = 0,
        steps_per_epoch: Count | None = None,
    ) -> None:
        owner = "RelationSampler"
        if not isinstance(relations, Relations):
            raise ValueError(
                "`relations` of RelationSampler must be a PairSet or a "
                f"TripletSet. Received: {type(relations).__name__}."
            )
        self.relations = relations
        self.tuples_per_batch = check_count(
            owner, "tuples_per_batch", tuples_per_batch
        )
        if tuples_per_batch > len(relations):
            raise ValueError(
                "`tuples_per_batch` of RelationSampler must not exceed "
                "the number of tuples. Received: "
                f"tuples_per_batch={tuples_per_batch} for "
                f"{relations!r}."
            )
        self.others = check_choice(owner, "others", others, OTHERS)
        super().__init__(
            # No two are alike but those that are said to be.
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
        rows = self.relations.rows[spread(counts, self.steps, rng)]
        return rows.transpose(0, 2, 1).reshape(self.steps, self.batch_size)

    def batch_labels(self, rows: Rows) -> Rows:
        """Relation between every two examples of a batch, (B, B)."""
        unknown = 0 if self.others == "negative" else -1
        return self.relations.between(rows, unknown).astype(np.int64)
