"""SurrogateSampler: class-balanced batches with labels of their own (MIC)."""

from typing import Any

import numpy.typing as npt

from keras_dml.data.samplers.base import Assigned
from keras_dml.data.samplers.class_balanced import ClassBalanced
from keras_dml.utils.types import Rows


class SurrogateSampler(Assigned, ClassBalanced):
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

    def targets(self, epoch: int) -> dict[str, Rows]:
        """Returns "surrogate", (steps, batch_size)."""
        if self.assignments is None:
            raise ValueError(
                "SurrogateSampler.targets requires the surrogate label of "
                "each image. Received: none. Add the callback "
                "SurrogateLabels(images, sampler) to `fit`, which sets them, "
                "or call set_assignments."
            )
        return {"surrogate": self.assignments[self.plan(epoch)]}
