"""ClassBalanced: batches of P classes with K images each; with surrogates."""

import logging
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from keras_dml.data.samplers.base import Assigned, Sampler
from keras_dml.data.samplers.planning import (
    Groups,
    balanced_counts,
    default_classes,
    draw_images,
    proportional_shares,
    quotas,
    random_counts,
    spread,
)
from keras_dml.utils.types import Count, FloatArray, Rows, StepCount

logger = logging.getLogger(__name__)

# Draws of a class are proportional to this power of its number of images.
WEIGHTINGS = {"balanced": 0.0, "proportional": 1.0, "sqrt": 0.5}


class ClassBalanced(Sampler):
    """Batches of P classes with K images each.

    A batch has exactly P different classes, and exactly K different images of
    each class that has at least K. A class with fewer images repeats them no
    more often than needed. A class uses all of its images before it repeats
    one, except for a remainder of fewer than K.

    Balanced classes are drawn equally often, to within one draw, in every
    epoch and over all epochs together: each class is drawn once before any is
    drawn twice.

    Corner cases: a class with a single image has no positive pair and is
    excluded, which is logged once, unless `images_per_class` is 1. If an epoch
    has fewer slots than there are classes, classes alternate between epochs.

    Args:
        labels: Class of every image, (N,) integers.
        classes_per_batch: Number of classes per batch, P. Without this and
            `batch_size`, 32, or all classes that can be drawn if there are
            fewer.
        images_per_class: Number of images per class in a batch, K.
        weighting: How often classes are drawn: "balanced", all equally often;
            "proportional" to their numbers of images; "sqrt", proportional to
            the square roots of these. A class is drawn at most once per batch
            and, if the epoch has enough slots, at least once per epoch.
        batch_size: Number of images per batch, instead of `classes_per_batch`.
            A batch has `batch_size // images_per_class` classes, or all if
            there are fewer; remaining slots are filled with more images of
            these classes.
        seed: Seed of all plans.
        steps_per_epoch: See `Sampler`.

    Raises:
        ValueError: If there are fewer classes than a batch requires, or an
            argument is not as described.

    Also known as:
        - pytorch-metric-learning: `MPerClassSampler(labels, m, batch_size)` is
          `ClassBalanced(labels, images_per_class=m, batch_size=batch_size)`.
        - TF Similarity: `MultiShotMemorySampler(x, y, classes_per_batch,
          examples_per_class_per_batch)`.
        - Elsewhere: P×K sampler, balanced batch sampler.

    Example:

    ```python
    sampler = ClassBalanced(
        train.labels, classes_per_batch=32, images_per_class=4
    )
    sampler.plan(epoch=0)  # (steps, 128) row numbers
    ```
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        classes_per_batch: Count | None = None,
        images_per_class: Count = 4,
        weighting: Literal["balanced", "proportional", "sqrt"] = "balanced",
        batch_size: Count | None = None,
        seed: int = 0,
        steps_per_epoch: StepCount | None = None,
    ) -> None:
        owner = type(self).__name__
        if classes_per_batch is not None and batch_size is not None:
            raise ValueError(
                f"{owner} takes either `classes_per_batch` or `batch_size`. "
                "Received: classes_per_batch="
                f"{classes_per_batch}, batch_size={batch_size}. Use, for "
                "example, classes_per_batch=32, images_per_class=4 or "
                "batch_size=128, images_per_class=4."
            )
        self.images_per_class = images_per_class
        labels = self._as_labels(labels)
        min_images = min(2, self.images_per_class)
        self._groups = Groups.of(labels, np.arange(len(labels)), min_images)
        if batch_size is None:
            classes_per_batch = default_classes(
                classes_per_batch, len(self._groups)
            )
            batch_size = classes_per_batch * self.images_per_class
        super().__init__(labels, batch_size, seed, steps_per_epoch)
        self._warn_of_unknown()
        self.weighting = weighting
        left_out = len(self.labels) - len(self._groups.rows)
        if left_out:
            logger.warning(
                "%s excludes classes with a single image: %d.",
                owner,
                left_out,
            )
        if classes_per_batch is None:
            classes_per_batch = self._classes_that_fit()
        elif classes_per_batch > len(self._groups):
            available = len(self._groups)
            way_out = "Metric learning needs several images of a class."
            if available:
                way_out = (
                    f"Use classes_per_batch={available}, or batch_size="
                    f"{self.batch_size} instead, to fill the batch with more "
                    "images of these classes."
                )
            raise ValueError(
                f"`classes_per_batch` of {owner} must not exceed the number of "
                f"classes with at least {min_images} images, {available}. "
                f"Received: classes_per_batch={classes_per_batch}. {way_out}"
            )
        self.classes_per_batch = classes_per_batch
        self._shares: FloatArray | None = None
        if weighting != "balanced":
            self._shares = proportional_shares(
                self._groups.sizes ** WEIGHTINGS[weighting],
                self.steps * self.classes_per_batch,
                self.steps,
            )

    def plan(self, epoch: int) -> Rows:
        """Rows of every batch, class by class, (steps, batch_size)."""
        rng = np.random.default_rng([self.seed, 0, epoch])
        slots = self.steps * self.classes_per_batch
        if self._shares is None:
            counts, before = balanced_counts(
                len(self._groups), slots, epoch, (self.seed, 1)
            )
        else:
            counts = random_counts(self._shares, slots, rng)
            # No epoch draws a class more often than its share rounded up.
            before = epoch * np.ceil(self._shares).astype(np.int64)
        classes = self._deal(counts, rng)
        share = quotas(self.batch_size, self.classes_per_batch)
        return draw_images(self._groups, classes, before, share, (self.seed,))

    def _deal(self, counts: Rows, rng: np.random.Generator) -> Rows:
        """Classes of every step, (steps, P), as often as counted."""
        return spread(counts, self.steps, rng)

    def _classes_that_fit(self) -> int:
        available = len(self._groups)
        classes = min(self.batch_size // self.images_per_class, available)
        if classes == 0:
            raise ValueError(
                f"`batch_size` of {type(self).__name__} must leave room for "
                "`images_per_class` images of at least one class that has two. "
                f"Received: batch_size={self.batch_size}, "
                f"images_per_class={self.images_per_class}, {available} of "
                "these classes."
            )
        return classes


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
