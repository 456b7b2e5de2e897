"""ClusterSampler: class-balanced batches from one cluster (D&C)."""

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.data.samplers.base import Assigned
from keras_dml.data.samplers.class_balanced import ClassBalanced
from keras_dml.data.samplers.planning import (
    Groups,
    balanced_counts,
    draw_images,
    quotas,
    spread,
)
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.types import Count, Rows, Several

Schedule: TypeAlias = Literal["alternate", "round_robin", "proportional"]
Fill: TypeAlias = Literal["none", "outside"]
LOSSES = ("sliced", "full")
SOURCES = ("clusters", "all")


class ClusterSampler(Assigned):
    """Batches from one cluster each, for divide and conquer.

    Every step draws a cluster, and from it P classes with K images each.
    `Recluster` sets from outside which image is in which cluster, as well as
    the phase of the training:

    - `("sliced", "clusters")`: a batch from a cluster trains its learner;
    - `("full", "clusters")`: a batch from a cluster trains the whole
      embedding;
    - `("sliced", "all")`: a batch from all data trains a learner;
    - `("full", "all")`: a batch from all data trains the whole embedding.

    Batches from all data are those of `ClassBalanced`.

    Corner cases: all batches have the same size. If a cluster has fewer than P
    classes with two images, all of them are used; then images whose class has
    no other image in the cluster, as negatives; then more images of its
    classes, repeated as often as needed. A cluster with fewer than two classes
    with two images (see `usable_clusters`) is never drawn.

    Args:
        labels: Class of every image, (N,) integers.
        classes_per_batch: Number of classes per batch, P.
        images_per_class: Number of images per class in a batch, K.
        num_learners: Number of clusters and of learners.
        schedule: How the cluster or learner of a step is drawn. "alternate",
            each with the same probability (the paper); "round_robin", in order
            (the released code); "proportional" to the sizes of the clusters.
        fill: How to treat an image whose class has no other image in its
            cluster. "none": it is at most a negative. "outside": its class is
            drawn too, together with images from other clusters.
        seed: Seed of all plans.
        steps_per_epoch: See `Sampler`.

    Attributes:
        phase: `(loss, source)`, initially `("sliced", "clusters")`.
        assignments: Cluster of every image, (N,) int64; None until it is set.
            They are from 0 to `num_learners` − 1, and at least one cluster is
            usable: see `usable_clusters`.

    Raises:
        ValueError: If there are fewer than P classes with two images, or an
            argument is not as described.

    Also known as:
        None of the compared libraries has an equivalent.

    Example:
        `ClusterSampler(train.labels, classes_per_batch=32, num_learners=4)`

    Reference:
        Sanakoyeu et al., "Divide and Conquer the Embedding Space for
        Metric Learning", CVPR 2019, Algorithm 1.
    """

    target_names = ("cluster", "learner")

    def __init__(
        self,
        labels: npt.ArrayLike,
        classes_per_batch: int,
        images_per_class: Several = 4,
        num_learners: Count = 4,
        schedule: Schedule = "alternate",
        fill: Fill = "none",
        seed: int = 0,
        steps_per_epoch: Count | None = None,
    ) -> None:
        self._all = ClassBalanced(
            labels,
            classes_per_batch,
            images_per_class,
            seed=seed,
            steps_per_epoch=steps_per_epoch,
        )
        super().__init__(labels, self._all.batch_size, seed, steps_per_epoch)
        self.classes_per_batch = self._all.classes_per_batch
        self.images_per_class = self._all.images_per_class
        self.num_learners = num_learners
        self.fill = fill
        self.schedule = schedule
        self.phase = ("sliced", "clusters")

    def _check_assignments(self, assignments: Rows) -> None:
        if assignments.max() >= self.num_learners:
            raise ValueError(
                "`assignments` of ClusterSampler must be from 0 to "
                f"`num_learners` − 1. Received: {assignments.min()} to "
                f"{assignments.max()}, num_learners={self.num_learners}."
            )
        labels, num_learners = self.labels, self.num_learners
        if not usable_clusters(assignments, labels, num_learners).any():
            raise ValueError(
                "`assignments` of ClusterSampler must include at least one "
                "cluster with two classes of two images each. Received: "
                "assignments without such a cluster. Merge clusters, or use "
                "fewer learners."
            )

    def set_phase(self, loss: str, source: str) -> None:
        """Sets the phase of the next plans.

        Args:
            loss: "sliced", one learner per step, or "full".
            source: "clusters" or "all".

        Raises:
            ValueError: If an argument is not one of these.
        """
        check_choice("ClusterSampler", "loss", loss, LOSSES)
        check_choice("ClusterSampler", "source", source, SOURCES)
        self.phase = (loss, source)

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "phase": self.phase}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.set_phase(*state["phase"])

    def plan(self, epoch: int) -> Rows:
        """Rows of every batch, class by class, (steps, batch_size)."""
        if self.phase[1] == "all":
            return self._all.plan(epoch)
        clusters = self._schedule(epoch)
        plan = np.empty((self.steps, self.batch_size), np.int64)
        for cluster in np.unique(clusters):
            steps = np.flatnonzero(clusters == cluster)
            plan[steps] = self._plan_cluster(int(cluster), len(steps), epoch)
        return plan

    def targets(self, epoch: int) -> dict[str, Rows]:
        """Returns the source and the learner of every batch.

        Returns:
            "cluster", (steps,): the cluster of the batch, −1 for all data;
            "learner", (steps,): the learner to train, −1 for the whole
            embedding.
        """
        loss, source = self.phase
        none = np.full(self.steps, -1)
        is_full = self.phase == ("full", "all")
        scheduled = none if is_full else self._schedule(epoch)
        return {
            "cluster": none if source == "all" else scheduled,
            "learner": none if loss == "full" else scheduled,
        }

    def _schedule(self, epoch: int) -> Rows:
        clusters, sizes = self._drawable()
        if self.schedule == "round_robin":
            first = epoch * self.steps
            return clusters[(first + np.arange(self.steps)) % len(clusters)]
        weights = sizes / sizes.sum()
        rng = np.random.default_rng([self.seed, 2, epoch])
        is_weighted = self.schedule == "proportional"
        p = weights if is_weighted else None
        return rng.choice(clusters, self.steps, p=p)

    def _drawable(self) -> tuple[Rows, Rows]:
        """The clusters that can be drawn, and their sizes."""
        assignments = self.assignments
        if assignments is None and self.phase[1] == "all":
            return np.arange(self.num_learners), np.ones(self.num_learners, int)
        if assignments is None:
            raise ValueError(
                "ClusterSampler.plan requires the cluster of each image. "
                "Received: no assignments. Add the callback Recluster(images, "
                "sampler) to `fit`, which sets them before every epoch that "
                "needs them, or call set_assignments."
            )
        usable = usable_clusters(assignments, self.labels, self.num_learners)
        sizes = np.bincount(assignments, minlength=self.num_learners)
        return np.flatnonzero(usable), sizes[usable]

    def _plan_cluster(self, cluster: int, steps: int, epoch: int) -> Rows:
        """Batches inside one cluster, (steps, batch_size)."""
        is_inside = np.asarray(self.assignments == cluster)
        inside = np.flatnonzero(is_inside)
        pool = self._pool(inside)
        groups = Groups.of(self.labels, pool, at_least=2)
        alone = inside[~np.isin(self.labels[inside], groups.labels)]
        classes = min(self.classes_per_batch, len(groups))
        room = self.batch_size - classes * self.images_per_class
        negatives = min(room, len(alone))
        seed = (self.seed, 3, epoch, cluster)
        rng = np.random.default_rng(seed)
        counts, before = balanced_counts(len(groups), steps * classes, 0, seed)
        drawn_classes = spread(counts, steps, rng)
        share = quotas(self.batch_size - negatives, classes)
        rows = draw_images(groups, drawn_classes, before, share, seed)
        if len(pool) > len(inside):
            # A class that was filled from outside may lack its only image of
            # the cluster, which then takes the place of its first one.
            labels, first = np.unique(self.labels[inside], return_index=True)
            starts = np.cumsum(share) - share
            has = np.logical_or.reduceat(is_inside[rows], starts, 1)
            leading = rows[:, starts]
            index = np.searchsorted(labels, self.labels[leading])
            rows[:, starts] = np.where(has, leading, inside[first][index])
        if negatives == 0:
            return rows
        counts, _ = balanced_counts(len(alone), steps * negatives, 0, seed)
        return np.hstack([rows, alone[spread(counts, steps, rng)]])

    def _pool(self, inside: Rows) -> Rows:
        if self.fill == "none":
            return inside
        classes, counts = np.unique(self.labels[inside], return_counts=True)
        lonely = np.isin(self.labels, classes[counts == 1])
        return np.union1d(inside, np.flatnonzero(lonely))


def usable_clusters(
    assignments: npt.ArrayLike, labels: npt.ArrayLike, num_learners: int
) -> npt.NDArray[np.bool_]:
    """Returns which clusters have two classes of two images, (num_learners,).

    These can provide batches with positives and negatives.

    Args:
        assignments: Cluster of every image, (N,) from 0 to `num_learners` − 1.
        labels: Class of every image, (N,).
        num_learners: Number of clusters.
    """
    _, class_of = np.unique(labels, return_inverse=True)
    classes = int(class_of.max()) + 1
    pairs, counts = np.unique(
        np.asarray(assignments) * classes + class_of, return_counts=True
    )
    cluster_of_class = pairs[counts >= 2] // classes
    return np.bincount(cluster_of_class, minlength=num_learners) >= 2
