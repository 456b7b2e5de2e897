"""MultiLabelBalanced: batches of P labels with K examples each."""

import logging
from itertools import chain, count
from typing import Any

import numpy as np

from keras_dml.data.samplers.base import Sampler
from keras_dml.data.samplers.planning import (
    balanced_counts,
    default_classes,
    spread,
)
from keras_dml.data.validation import are_label_sets, as_table
from keras_dml.utils.types import Count, Labels, Rows

logger = logging.getLogger(__name__)


class MultiLabelBalanced(Sampler):
    """Batches of P labels with K examples each.

    For examples with several labels each. A batch has P different labels and,
    in sequence, K examples of each label that were not already chosen for the
    previous labels. A label uses all of its examples in an epoch before it
    repeats one. Labels are drawn equally often, to within one draw, in every
    epoch and over all epochs together.

    A batch may contain more than K examples of a label, because examples come
    with their other labels.

    Corner cases: a label with only one example has no positive pair and is not
    drawn, which is logged once, unless `images_per_class` is 1. Examples
    without any label are not drawn either. If too few examples of a label
    remain outside the batch, some are repeated.

    Args:
        labels: (N, C) booleans: which example has which label; or N sets of
            labels.
        classes_per_batch: Number of labels drawn for a batch, P. None: 32, or
            all labels that can be drawn if there are fewer.
        images_per_class: Number of examples of each label, K.
        seed: Seed of all plans.
        steps_per_epoch: See `Sampler`.

    Raises:
        ValueError: If labels are not as described, or fewer than P can be
            drawn.

    Also known as:
        None of the compared libraries has an equivalent.

    Example:

    ```python
    sampler = MultiLabelBalanced(
        train.labels, classes_per_batch=16, images_per_class=4
    )
    sampler.plan(epoch=0)  # (steps, 64) row numbers
    ```
    """

    def __init__(
        self,
        labels: Any,
        classes_per_batch: Count | None = None,
        images_per_class: Count = 4,
        seed: int = 0,
        steps_per_epoch: Count | None = None,
    ) -> None:
        self.images_per_class = images_per_class
        labels = self._as_labels(labels)
        sizes = labels.sum(axis=0)
        min_examples = min(2, self.images_per_class)
        self._drawable = np.flatnonzero(sizes >= min_examples)
        self.classes_per_batch = default_classes(
            classes_per_batch, len(self._drawable)
        )
        batch_size = self.classes_per_batch * self.images_per_class
        super().__init__(labels, batch_size, seed, steps_per_epoch)
        self._members = [
            np.flatnonzero(self.labels[:, label]) for label in self._drawable
        ]
        left_out = np.count_nonzero(sizes) - len(self._drawable)
        if left_out:
            logger.warning(
                "MultiLabelBalanced does not draw labels that only one "
                "example has: %d.",
                left_out,
            )
        if self.classes_per_batch > len(self._drawable):
            raise ValueError(
                "`classes_per_batch` of MultiLabelBalanced must not exceed the "
                f"number of labels with at least {min_examples} examples, "
                f"{len(self._drawable)}. Received: "
                f"classes_per_batch={classes_per_batch}. Use a smaller number."
            )

    def _as_labels(self, labels: Any) -> Labels:
        owner = "MultiLabelBalanced"
        if not are_label_sets(labels):
            raise ValueError(
                f"`labels` of {owner} must be several per example: (N, C) "
                "booleans, or sets. Received: labels of type "
                f"{type(labels).__name__}. Convert zeros and ones to booleans "
                "with labels.astype(bool); for one label per example, use "
                "ClassBalanced."
            )
        return as_table(labels, {}, owner)[0]

    def plan(self, epoch: int) -> Rows:
        """Rows of every batch, (steps, P · K)."""
        rng = np.random.default_rng([self.seed, 0, epoch])
        slots = self.steps * self.classes_per_batch
        counts, _ = balanced_counts(
            len(self._drawable), slots, epoch, (self.seed, 1)
        )
        label_plan = spread(counts, self.steps, rng)
        streams = [_Stream(members, rng) for members in self._members]
        batches = []
        for labels in label_plan:
            batch: list[int] = []
            used: set[int] = set()
            for label in labels:
                # K examples, with few repeats of those of other labels.
                rows = streams[label].take(self.images_per_class, used)
                batch += rows
                used.update(rows)
            batches.append(batch)
        return np.array(batches)


class _Stream:
    """Rows in random order, round after round."""

    def __init__(self, rows: Rows, rng: np.random.Generator) -> None:
        self._rows = rows
        shuffled = (rng.permutation(rows).tolist() for _ in count())
        self._order = chain.from_iterable(shuffled)

    def take(self, size: int, used: set[int]) -> list[int]:
        """Returns the next unused rows, and repeats if too few remain.

        Used rows count as drawn, and are skipped.
        """
        free = len(self._rows) - len(used)
        if free < size:
            free = sum(row not in used for row in self._rows.tolist())
        picked: dict[int, None] = {}
        while len(picked) < min(size, free):
            row = next(self._order)
            if row not in used:
                picked[row] = None
        repeats = np.arange(size - len(picked)) % len(self._rows)
        return [*picked, *self._rows[repeats].tolist()]
