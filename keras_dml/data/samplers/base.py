"""Sampler: what all samplers have in common."""

import abc
from typing import Any, ClassVar

from keras_dml.data.fields import as_labels
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import Labels, Rows


class Sampler(abc.ABC):
    """Plans which images go into which batch, one epoch at a time.

    A plan is a pure function of the labels, the constructor's arguments
    and the epoch, so that any step of any epoch can be planned again.

    Args:
        labels: Class of every image, (N,) integers.
        batch_size: Images in a batch.
        seed: Seed of all plans, a non-negative integer.
        steps_per_epoch: Batches in an epoch. By default as many whole
            batches as there are images, at least one.

    Attributes:
        epoch: The epoch that the pipeline plans next. The pipeline reads
            it and counts it up; set it to resume.

    Raises:
        ValueError: If an argument is not as described.
    """

    target_names: ClassVar[tuple[str, ...]] = ()
    """Names of the numbers in `targets`."""

    def __init__(
        self,
        labels: Any,
        batch_size: int,
        seed: int = 0,
        steps_per_epoch: int | None = None,
    ) -> None:
        owner = type(self).__name__
        self.labels: Labels = self._as_labels(labels)
        self.batch_size = check_count(owner, "batch_size", batch_size)
        self.seed = check_count(owner, "seed", seed, least=0)
        if steps_per_epoch is None:
            steps_per_epoch = max(1, len(self.labels) // batch_size)
        self.steps = check_count(owner, "steps_per_epoch", steps_per_epoch)
        self.epoch = 0

    def _as_labels(self, labels: Any) -> Labels:
        return as_labels(labels, type(self).__name__)

    @abc.abstractmethod
    def plan(self, epoch: int) -> Rows:
        """The images of every batch of an epoch.

        Args:
            epoch: Number of the epoch, from 0.

        Returns:
            Row numbers, (steps, batch_size) int64.
        """

    def targets(self, epoch: int) -> dict[str, Rows]:
        """Numbers that travel with the batches of an epoch.

        Args:
            epoch: Number of the epoch, from 0.

        Returns:
            For each of `target_names`, (steps,) int64.
        """
        return {}

    def get_state(self) -> dict[str, Any]:
        """What plans hang on beside the constructor's arguments.

        Returns:
            Numbers, strings, None, arrays, and lists and dicts of them.
        """
        return {"epoch": self.epoch}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` gave."""
        self.epoch = state["epoch"]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self.labels):,} images; "
            f"{self.steps:,} steps of {self.batch_size} an epoch)"
        )
