"""SurrogateSampler: class-balanced batches with labels of their own (MIC)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from keras_dml.data.fields import read_only
from keras_dml.data.samplers.class_balanced import ClassBalanced
from keras_dml.utils.types import Rows


class SurrogateSampler(ClassBalanced):
    """Batches of P classes with K images each, with surrogate labels.

    Batches are those of `ClassBalanced`. Every image has a second label, its
    surrogate label, which `callbacks.SurrogateLabels` determines by clustering
    and which batches have as the target "surrogate", (B,).

    Args:
        labels: Class of every image, see `ClassBalanced`.
        *args: See `ClassBalanced`.
        **kwargs: See `ClassBalanced`.

    Raises:
        ValueError: If an argument is not as described.

    Also known as:
        None of the compared libraries has an equivalent.

    Example:
        `SurrogateSampler(train.labels, classes_per_batch=32)`

    Reference:
        Roth et al., "MIC: Mining Interclass Characteristics for Improved
        Metric Learning", ICCV 2019.
    """

    target_names = ("surrogate",)

    def __init__(
        self, labels: npt.ArrayLike, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(labels, *args, **kwargs)
        self._assignments: Rows | None = None

    @property
    def assignments(self) -> Rows | None:
        """Surrogate label of every image, (N,) int64; None until it is set."""
        return self._assignments

    def set_assignments(self, assignments: npt.ArrayLike) -> None:
        """Sets the surrogate labels, starting with the next plan.

        Args:
            assignments: Surrogate label of every image, (N,) integers of at
                least 0.

        Raises:
            ValueError: If they are not as described.
        """
        array = np.array(assignments)
        if array.dtype.kind not in "iu" or array.shape != self.labels.shape:
            raise ValueError(
                "`assignments` of SurrogateSampler must have one integer per "
                f"image. Received: assignments of dtype {array.dtype} and "
                f"shape {array.shape}, {len(self.labels)} images. Use the "
                "clusters of `evaluation.kmeans`."
            )
        if array.min() < 0:
            raise ValueError(
                "`assignments` of SurrogateSampler must be at least 0. "
                f"Received: {array.min()}. Number the clusters from 0."
            )
        self._assignments = read_only(array.astype(np.int64))

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "assignments": self._assignments}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        if state["assignments"] is not None:
            self.set_assignments(state["assignments"])

    def targets(self, epoch: int) -> dict[str, Rows]:
        """Returns "surrogate", (steps, batch_size)."""
        if self._assignments is None:
            raise ValueError(
                "SurrogateSampler.targets requires the surrogate label of "
                "each image. Received: none. Add the callback "
                "SurrogateLabels(images, sampler) to `fit`, which sets them, "
                "or call set_assignments."
            )
        return {"surrogate": self._assignments[self.plan(epoch)]}
