"""Recluster: divides the training set among learners every few epochs."""

import logging
import math
import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from keras_dml.callbacks.clustering import (
    Clustering,
    centroids_of,
    feature_model,
)
from keras_dml.data import ClusterSampler, Examples, usable_clusters
from keras_dml.data.samplers.cluster import LOSSES, SOURCES
from keras_dml.embedding import EmbeddingShards
from keras_dml.embedding.shards import source_ids, unique_ids
from keras_dml.utils.lazy_rows import ArrayRows, EmbeddingRows
from keras_dml.utils.types import Count, FloatArray, Rows

logger = logging.getLogger(__name__)

Partition: TypeAlias = Literal["kmeans", "random", "labels", "column"]
Space: TypeAlias = Literal["embedding", "features"]
Initial: TypeAlias = EmbeddingShards | str | os.PathLike[str]
"""Shards or their folder."""


def merge_unusable(
    assignments: Rows, centroids: FloatArray, usable: np.ndarray
) -> Rows:
    """Moves the images of unusable clusters to the nearest usable one.

    Args:
        assignments: Cluster of every image, (N,).
        centroids: (K, D).
        usable: Which clusters can be trained on, (K,) booleans.

    Returns:
        Assignments to usable clusters only, (N,). If there are none, all images
        are assigned to cluster 0.
    """
    if not usable.any():
        return np.zeros_like(assignments)
    distances = np.square(centroids[:, None] - centroids[None, usable]).sum(-1)
    nearest = np.flatnonzero(usable)[distances.argmin(axis=1)]
    target = np.where(usable, np.arange(len(usable)), nearest)
    return target[assignments]


def random_partition(count: int, num_learners: int, seed: int) -> Rows:
    """Assigns images to learners at random, as evenly as possible."""
    balanced = np.arange(count, dtype=np.int64) % num_learners
    return np.random.default_rng(seed).permutation(balanced)


def label_partition(labels: Rows, num_learners: int) -> Rows:
    """Assigns whole classes to learners, in the order of the labels.

    Neighboring labels stay together, which groups classes by meaning if labels
    are sorted by meaning. All learners get about the same number of images.
    """
    _, inverse, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    middle = np.cumsum(counts) - counts / 2
    learner_of_class = (middle * num_learners / len(labels)).astype(np.int64)
    return learner_of_class[inverse]


def group_partition(groups: Rows, num_learners: int) -> Rows:
    """Assigns whole groups to learners, about as many images to each.

    The largest group comes first, and each goes to the learner with the fewest
    images: with as many groups as learners, each learner gets one.

    Raises:
        ValueError: If there are fewer groups than learners.
    """
    _, inverse, counts = np.unique(
        groups, return_inverse=True, return_counts=True
    )
    if len(counts) < num_learners:
        raise ValueError(
            "`partition_column` of Recluster must have at least as many groups "
            f"as there are learners. Received: {len(counts)} groups and "
            f"{num_learners} learners. Use fewer learners."
        )
    images = np.zeros(num_learners, np.int64)
    learner_of_group = np.empty(len(counts), np.int64)
    for group in np.argsort(-counts, kind="stable"):
        learner = images.argmin()
        learner_of_group[group] = learner
        images[learner] += counts[group]
    return learner_of_group[inverse]


def initial_embeddings(
    initial: Initial, examples: Examples, owner: str
) -> EmbeddingShards:
    """Shards of exactly these examples, in the same order.

    Args:
        initial: The argument `initial` of `owner`.
        examples: The training set.
        owner: The name of the owner of the argument in messages.

    Raises:
        ValueError: If their number, ids or labels differ from the examples'.
    """
    shards = initial
    if not isinstance(shards, EmbeddingShards):
        shards = EmbeddingShards(shards)
    difference = _difference(shards, examples)
    if difference:
        raise ValueError(
            f"`initial` of {owner} must be embeddings of all of its examples, "
            f"in the same order. Received: {shards!r}, {difference}. Use "
            "`keras-dml embed` on the same examples."
        )
    return shards


def _difference(shards: EmbeddingShards, examples: Examples) -> str:
    """How shards differ from examples; empty if they do not."""
    if len(shards) != len(examples):
        return f"of {len(shards)} examples instead of {len(examples)}"
    ids = unique_ids(source_ids(examples))
    for row, (there, here) in enumerate(zip(shards.ids, ids, strict=True)):
        if there != here:
            return f"whose row {row} is {there!r} instead of {here!r}"
    theirs, ours = shards.labels, examples.labels
    if theirs is not None and not np.array_equal(theirs, np.asarray(ours)):
        return "whose labels are different"
    return ""


class Phase(NamedTuple):
    """Consecutive epochs with the same loss and source of batches."""

    until: int | None
    """The epoch before which the phase ends; None for the last phase."""
    loss: str
    """"sliced" for the slice of one learner, "full" for the whole embedding."""
    source: str
    """"clusters" for batches from one cluster each, or "all" data."""


def default_phases(epochs: int) -> list[Phase]:
    """The two phases of the paper: alternating, then fine-tuning.

    The paper does not state how long to fine-tune the merged embedding. Here,
    it is the last fifth of the epochs, and at least one of two or more.
    """
    fine_tuning = max(1, round(epochs / 5)) if epochs > 1 else 0
    return [
        Phase(epochs - fine_tuning, "sliced", "clusters"),
        Phase(None, "full", "all"),
    ]


def check_phases(phases: Sequence[Any]) -> list[Phase]:
    """Checks that the user's phases are valid and in order."""
    for phase in phases:
        fits = (
            isinstance(phase, list | tuple)
            and len(phase) == 3
            and isinstance(phase[0], int | None)
            and phase[1] in LOSSES
            and phase[2] in SOURCES
        )
        if not fits:
            raise ValueError(
                "`phases` of Recluster must hold triples (until_epoch, loss, "
                f"source) with loss in {LOSSES} and source in {SOURCES}. "
                f"Received: {phase!r}."
            )
    ends = [math.inf if phase[0] is None else phase[0] for phase in phases]
    if ends != sorted(set(ends)) or ends[-1:] != [math.inf]:
        raise ValueError(
            "`phases` of Recluster must end at increasing epochs, and the "
            f"last one at None. Received: phases={phases!r}. Use for "
            'instance [(8, "sliced", "clusters"), (None, "full", "all")].'
        )
    return [Phase(*phase) for phase in phases]


def phase_at(phases: list[Phase], epoch: int) -> Phase:
    """The phase that `epoch` belongs to."""
    return next(
        phase for phase in phases if phase.until is None or epoch < phase.until
    )


class Recluster(Clustering):
    """Divides the training set among the learners every T epochs.

    Before epoch 0 and then every `every` epochs (Algorithm 1), it embeds all
    training images in the test view, clusters them by K-means into as many
    clusters as there are learners, and assigns cluster k to learner k. It also
    switches between the phases of training. When the merged embedding begins to
    train, its loss starts from class means or from what the learners learned;
    see `merged_start` of `methods.divide_and_conquer`.

    A cluster with fewer than two classes with two images cannot be trained on.
    It is merged into the nearest one that can, with a warning, and its learner
    pauses until the next division.

    This callback logs `recluster_seconds`, so it must come before callbacks
    that read the logs. Its `divisions` are reports of all divisions.

    Args:
        images: The training set, as given to the pipeline.
        sampler: The `ClusterSampler` of the pipeline.
        every: Number of epochs between divisions, T.
        partition: "kmeans"; or, for comparison (Table 6), a single division:
            "random" assigns images to learners at random, "labels" assigns
            whole classes in the order of their labels, and "column" assigns
            whole groups, such as classes that were grouped by hand.
        partition_column: For partition "column": its name in `images.groups`.
        cluster_space: "embedding", as in the paper, or "features" for the
            pooled features, scaled to unit length, as in the released code.
        phases: A list of `(until_epoch, loss, source)` with loss "sliced" or
            "full" and source "clusters" or "all". By default, the two phases of
            the paper, with the last fifth of the epochs for the merged
            embedding.
        iterations: Number of K-means iterations.
        sample: Number of random images from which K-means computes centroids;
            see `evaluation.kmeans`. By default, all images.
        initial: Embeddings of the training set, `EmbeddingShards` or their
            folder, for the first division, so that the images need not be
            embedded for it. They may be from another model, such as the
            pretrained one. Later divisions use embeddings of the model in
            training. With `sample`, they are read block by block.
        batch_size: Number of images to embed at a time.
        seed: Seed of K-means and of the random partition.

    Raises:
        ValueError: If an argument is invalid, there are fewer images than
            learners, or `initial` is for other images.

    Reference:
        Sanakoyeu et al., "Divide and Conquer the Embedding Space for
        Metric Learning", CVPR 2019, Algorithm 1.
    """

    sampler_class = ClusterSampler

    def __init__(
        self,
        images: Any,
        sampler: ClusterSampler,
        every: Count = 2,
        *,
        partition: Partition = "kmeans",
        partition_column: str | None = None,
        cluster_space: Space = "embedding",
        phases: Sequence[tuple[Count | None, str, str]] | None = None,
        iterations: int = 20,
        sample: Count | None = None,
        initial: Initial | None = None,
        batch_size: int = 256,
        seed: int = 0,
    ) -> None:
        examples = self._check_images(images, sampler)
        super().__init__(
            examples,
            sampler,
            sampler.num_learners,
            every,
            iterations=iterations,
            sample=sample,
            batch_size=batch_size,
            seed=seed,
        )
        self.partition = partition
        self.partition_column = partition_column
        self._check_column()
        self.cluster_space = cluster_space
        self.phases = None if phases is None else check_phases(phases)
        self.initial: EmbeddingShards | None = None
        if initial is not None:
            self.initial = initial_embeddings(initial, examples, "Recluster")
        self._merged_at: int | None = None

    def _check_column(self) -> None:
        column, groups = self.partition_column, self.images.groups
        if (column is not None) != (self.partition == "column"):
            raise ValueError(
                "`partition_column` of Recluster must be given for partition "
                f"'column', and for no other. Received: partition_column="
                f"{column!r} and partition={self.partition!r}."
            )
        if column is None:
            return
        if column not in groups:
            raise ValueError(
                "`partition_column` of Recluster must be in the `groups` of "
                f"the images. Received: {column!r}, and images with "
                f"{', '.join(groups) or 'no groups'}. Use "
                "images.with_groups({name: groups}), or for a table "
                "`groups=[name]`."
            )
        group_partition(groups[column], self.sampler.num_learners)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        phases = self.phases or default_phases(self.params["epochs"])
        phase = phase_at(phases, epoch)
        self.sampler.set_phase(phase.loss, phase.source)
        self.sampler.epoch = epoch
        before = phase_at(phases, epoch - 1) if epoch else phase
        # If training is resumed within this epoch, this has been done.
        if (before.loss, phase.loss) == LOSSES and self._merged_at != epoch:
            self._merged_at = epoch
            self.model.objective.start_merged(self._class_means)
        is_first = self._assignments is None
        is_due = self.partition == "kmeans" and epoch % self.every == 0
        if phase.source == "clusters" and (is_first or is_due):
            self._divide(epoch)

    def get_state(self) -> dict[str, Any]:
        """The state of this callback, for `Resume`."""
        return {**super().get_state(), "merged_at": self._merged_at}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`."""
        super().set_state(state)
        self._merged_at = state["merged_at"]

    def _points(self) -> EmbeddingRows:
        if self.initial is not None and self._assignments is None:
            return ArrayRows(self.initial.array())
        if self.cluster_space == "features":
            return self._outputs_of(feature_model(self.model, self.images))
        return super()._points()

    def _class_means(self, num_classes: int) -> FloatArray:
        points = self._outputs_of(self.model)
        return centroids_of(points, self.images.known_labels, num_classes)

    def _assign(self, points: EmbeddingRows) -> tuple[Rows, tuple[int, ...]]:
        assignments = self._cluster(points)
        usable = usable_clusters(
            assignments, self.images.known_labels, self.num_clusters
        )
        centroids = centroids_of(points, assignments, self.num_clusters)
        assignments = merge_unusable(assignments, centroids, usable)
        merged = tuple(np.flatnonzero(~usable).tolist())
        if merged:
            logger.warning(
                "Clusters %s have fewer than two classes with two images. "
                "Their images are moved to the nearest usable cluster, and "
                "their learners pause until the next division.",
                list(merged),
            )
        return assignments, merged

    def _cluster(self, points: EmbeddingRows) -> Rows:
        if self.partition == "random":
            return random_partition(len(points), self.num_clusters, self.seed)
        if self.partition == "labels":
            return label_partition(self.images.known_labels, self.num_clusters)
        if self.partition_column is not None:
            groups = self.images.groups[self.partition_column]
            return group_partition(groups, self.num_clusters)
        return self._kmeans(points)
