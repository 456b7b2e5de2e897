"""Sampler: the interface of all samplers."""

import abc
import logging
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from keras_dml.data.validation import as_labels, read_only
from keras_dml.utils.arguments import Checked
from keras_dml.utils.types import Count, Labels, NonNegativeInt, Rows

logger = logging.getLogger(__name__)

UNKNOWN = (
    "%s has examples with the label -1: %d. It counts as a class like any "
    "other, so they are positives of each other. If it means that the class is "
    "unknown, leave these examples out."
)


class Sampler(Checked, abc.ABC):
    """Plans which images go into which batch, one epoch at a time.

    A plan is a pure function of the labels, the constructor's arguments and
    the epoch, so any step of any epoch can be planned again.

    Args:
        labels: Class of every image, (N,) integers.
        batch_size: Number of images per batch.
        seed: Seed of all plans, a non-negative integer.
        steps_per_epoch: Number of batches per epoch. By default the number of
            complete batches that the images form, at least one.

    Attributes:
        epoch: The epoch that the pipeline plans next. The pipeline reads and
            increments it; set it to resume.

    Raises:
        ValueError: If an argument is not as described.
    """

    target_names: ClassVar[tuple[str, ...]] = ()
    """Names of the numbers in `targets`."""

    def __init__(
        self,
        labels: Any,
        batch_size: Count,
        seed: NonNegativeInt = 0,
        steps_per_epoch: Count | None = None,
    ) -> None:
        self.labels: Labels = self._as_labels(labels)
        self.batch_size = int(batch_size)
        self.seed = int(seed)
        if steps_per_epoch is None:
            steps_per_epoch = max(1, len(self.labels) // batch_size)
        self.steps = int(steps_per_epoch)
        self.epoch = 0

    def _warn_of_unknown(self) -> None:
        count = int(np.count_nonzero(self.labels == -1))
        if count:
            logger.warning(UNKNOWN, type(self).__name__, count)

    def _as_labels(self, labels: Any) -> Labels:
        return as_labels(labels, type(self).__name__)[0]

    @abc.abstractmethod
    def plan(self, epoch: int) -> Rows:
        """Returns the images in every batch of an epoch.

        Args:
            epoch: Number of the epoch, from 0.

        Returns:
            Row numbers, (steps, batch_size) int64.
        """

    def targets(self, epoch: int) -> dict[str, Rows]:
        """Returns numbers that accompany the batches of an epoch.

        Args:
            epoch: Number of the epoch, from 0.

        Returns:
            For each of `target_names`, int64 numbers: (steps,), one per batch,
            or (steps, batch_size), one per image.
        """
        return {}

    def get_state(self) -> dict[str, Any]:
        """Returns the state of plans, apart from the constructor's arguments.

        Returns:
            Numbers, strings, None, arrays, and lists and dicts of these.
        """
        return {"epoch": self.epoch}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state returned by `get_state`."""
        self.epoch = state["epoch"]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self.labels):,} examples; "
            f"{self.steps:,} steps of {self.batch_size} per epoch)"
        )


class Assigned(Sampler):
    """A sampler whose clusters of images are set from outside.

    Attributes:
        assignments: Cluster of every image, (N,) int64; None until it is set.
    """

    assignments: Rows | None = None

    def set_assignments(self, assignments: npt.ArrayLike) -> None:
        """Sets which image is in which cluster, starting with the next plan.

        Args:
            assignments: Cluster of every image, (N,) integers of at least 0.

        Raises:
            ValueError: If they are not as described.
        """
        owner = type(self).__name__
        array = np.array(assignments)
        if array.dtype.kind not in "iu" or array.shape != self.labels.shape:
            raise ValueError(
                f"`assignments` of {owner} must have one integer per image. "
                f"Received: assignments of dtype {array.dtype} and shape "
                f"{array.shape}, {len(self.labels)} images. Use the clusters "
                "of `evaluation.kmeans`."
            )
        if array.min() < 0:
            raise ValueError(
                f"`assignments` of {owner} must be at least 0. Received: "
                f"{array.min()} to {array.max()}. Number the clusters from 0."
            )
        self._check_assignments(array)
        self.assignments = read_only(array)

    def _check_assignments(self, assignments: Rows) -> None:
        """Raises `ValueError` if a sampler needs more of them."""

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "assignments": self.assignments}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        if state["assignments"] is not None:
            self.set_assignments(state["assignments"])
