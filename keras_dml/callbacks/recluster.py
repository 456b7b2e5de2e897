"""Recluster: divides the training set among learners every few epochs."""

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import keras
import numpy as np

from keras_dml.callbacks.initial_embeddings import Initial, initial_embeddings
from keras_dml.data import ClusterSampler, Examples, View, usable_clusters
from keras_dml.data.feature_set import FEATURES, MASK, FeatureSet, symbolic
from keras_dml.data.given import as_examples
from keras_dml.data.samplers.cluster import LOSSES, SOURCES
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import done_by_chief
from keras_dml.embedding import EmbeddingShards
from keras_dml.embedding.shares import embed_shares
from keras_dml.evaluation import kmeans
from keras_dml.model.generated import input_specs
from keras_dml.utils.arguments import check_choice, check_count
from keras_dml.utils.notebook import html_table
from keras_dml.utils.stored import EmbeddingRows, Mapped
from keras_dml.utils.types import Count, FloatArray, Rows
from keras_dml.utils.vectors import CHUNK, blocks

logger = logging.getLogger(__name__)

Partition: TypeAlias = Literal["kmeans", "random", "labels"]
Space: TypeAlias = Literal["embedding", "features"]


def match_learners(new: Rows, old: Rows, num_learners: int) -> Rows:
    """Relabels clusters so that learners keep as many images as possible.

    New clusters are matched one to one with old ones by maximum total overlap
    (Hungarian method), and take the numbers of their matches.

    Args:
        new: New cluster of every image, (N,), 0 to K − 1.
        old: Old cluster of every image, (N,), 0 to K − 1.
        num_learners: Number of clusters, K.

    Returns:
        The new clusters under the numbers of the old ones, (N,).
    """
    from scipy.optimize import linear_sum_assignment

    overlap = np.zeros((num_learners, num_learners), np.int64)
    np.add.at(overlap, (new, old), 1)
    rows, columns = linear_sum_assignment(overlap, maximize=True)
    old_number_of = np.empty(num_learners, np.int64)
    old_number_of[rows] = columns
    return old_number_of[new]


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


def centroids_of(
    points: EmbeddingRows, assignments: Rows, num_learners: int
) -> FloatArray:
    """Mean of every cluster, (K, D); zeros for an empty one."""
    sums = np.zeros((num_learners, points.shape[1]), np.float64)
    for rows in blocks(len(points), CHUNK):
        np.add.at(sums, assignments[rows], points[rows])
    counts = np.bincount(assignments, minlength=num_learners)
    return sums / np.maximum(counts, 1)[:, None]


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


@dataclass(frozen=True)
class Division:
    """The result and the cost of one re-clustering.

    Attributes:
        epoch: The epoch before which it took place, counted from 0.
        sizes: Number of images in each cluster.
        kept: Share of the images that stayed with their learner; None for the
            first division.
        merged: Clusters merged into the nearest one because they had fewer than
            two classes with two images.
        seconds_embedding: Time to embed the training set.
        seconds_clustering: Time for K-means and matching.
    """

    epoch: int
    sizes: tuple[int, ...]
    kept: float | None
    merged: tuple[int, ...]
    seconds_embedding: float
    seconds_clustering: float

    @property
    def seconds(self) -> float:
        """Total time."""
        return self.seconds_embedding + self.seconds_clustering

    def _repr_html_(self) -> str:
        """The clusters and their sizes, for notebooks."""
        rows = [["cluster", "images", ""]]
        for cluster, size in enumerate(self.sizes):
            merged = "merged" if cluster in self.merged else ""
            rows.append([str(cluster), f"{size:,}", merged])
        return html_table(rows, str(self))

    def __str__(self) -> str:
        sizes = ", ".join(str(size) for size in self.sizes)
        kept = "" if self.kept is None else f"; {self.kept:.0%} stayed"
        return (
            f"Division before epoch {self.epoch + 1}: clusters of {sizes} "
            f"images{kept} ({self.seconds:.1f} s)."
        )


class Recluster(keras.callbacks.Callback):
    """Divides the training set among the learners every T epochs.

    Before epoch 0 and then every `every` epochs (Algorithm 1), it embeds all
    training images in the test view, clusters them by K-means into as many
    clusters as there are learners, and assigns cluster k to learner k. It also
    switches between the phases of training. When the merged embedding begins to
    train, its loss starts from the learned variables of the learners; see
    `merged_start` of `methods.divide_and_conquer`.

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
            whole classes in the order of their labels.
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

    logged_names = frozenset({"recluster_seconds"})

    def __init__(
        self,
        images: Any,
        sampler: ClusterSampler,
        every: Count = 2,
        *,
        partition: Partition = "kmeans",
        cluster_space: Space = "embedding",
        phases: Sequence[tuple[Count | None, str, str]] | None = None,
        iterations: int = 20,
        sample: Count | None = None,
        initial: Initial | None = None,
        batch_size: int = 256,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_choice("Recluster", "partition", partition, get_args(Partition))
        check_choice(
            "Recluster", "cluster_space", cluster_space, get_args(Space)
        )
        images = as_examples(images, "images", "Recluster")
        if not isinstance(sampler, ClusterSampler):
            raise ValueError(
                "`sampler` of Recluster must be the ClusterSampler of the "
                f"pipeline. Received: {sampler!r}. Use "
                "ClusterSampler(images.labels, num_learners=…)."
            )
        if len(images) != len(sampler.labels):
            raise ValueError(
                "`images` of Recluster must be the images of `sampler`. "
                f"Received: {len(images)} images and a sampler for "
                f"{len(sampler.labels)}."
            )
        if len(images) < sampler.num_learners:
            raise ValueError(
                "`images` of Recluster must have at least one image per "
                f"learner. Received: {len(images)} images and "
                f"{sampler.num_learners} learners. Use fewer learners."
            )
        self.images: Examples = images
        self.sampler = sampler
        self.every = check_count("Recluster", "every", every)
        self.partition = partition
        self.cluster_space = cluster_space
        self.phases = None if phases is None else check_phases(phases)
        self.iterations = iterations
        if sample is not None:
            least = sampler.num_learners
            check_count("Recluster", "sample", sample, least)
        self.sample = sample
        self.initial: EmbeddingShards | None = None
        if initial is not None:
            self.initial = initial_embeddings(initial, images, "Recluster")
        self.batch_size = batch_size
        self.seed = seed
        self.divisions: list[Division] = []
        self._assignments: Rows | None = None
        self._merged_at: int | None = None

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

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["recluster_seconds"] = sum(
                x.seconds for x in self.divisions[-1:] if x.epoch == epoch
            )

    def get_state(self) -> dict[str, Any]:
        """The state of this callback, for `Resume`."""
        return {
            "assignments": self._assignments,
            "merged_at": self._merged_at,
            "divisions": [vars(x) for x in self.divisions],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`."""
        self._assignments = state["assignments"]
        self._merged_at = state["merged_at"]
        self.divisions = [
            Division(
                **{
                    **x,
                    "sizes": tuple(x["sizes"]),
                    "merged": tuple(x["merged"]),
                }
            )
            for x in state["divisions"]
        ]

    def _divide(self, epoch: int) -> None:
        start = time.perf_counter()
        points = self._points()
        embedded = time.perf_counter()
        assignments, merged = self._assign_once(points)
        previous, self._assignments = self._assignments, assignments
        self.sampler.set_assignments(assignments)
        done = time.perf_counter()
        sizes = np.bincount(assignments, minlength=self.sampler.num_learners)
        kept = None
        if previous is not None:
            kept = float(np.mean(assignments == previous))
        division = Division(
            epoch=epoch,
            sizes=tuple(sizes.tolist()),
            kept=kept,
            merged=merged,
            seconds_embedding=embedded - start,
            seconds_clustering=done - embedded,
        )
        self.divisions.append(division)
        logger.info("%s", division)

    def _points(self) -> EmbeddingRows:
        if self.initial is not None and self._assignments is None:
            return Mapped(self.initial.array())
        model = self.model
        if self.cluster_space == "features":
            model = _feature_model(model, self.images)
        return embed_shares(
            model, self.images, self.batch_size, strategy_of(self.model)
        )

    def _class_means(self, num_classes: int) -> FloatArray:
        points = embed_shares(
            self.model, self.images, self.batch_size, strategy_of(self.model)
        )
        return centroids_of(points, self.images.known_labels, num_classes)

    def _assign_once(
        self, points: EmbeddingRows
    ) -> tuple[Rows, tuple[int, ...]]:
        """Assignments of the chief, as rounding may differ between machines."""

        def assigned() -> list[list[int]]:
            assignments, merged = self._assign(points)
            return [assignments.tolist(), list(merged)]

        assignments, merged = done_by_chief(assigned, strategy_of(self.model))
        return np.array(assignments, np.int64), tuple(merged)

    def _assign(self, points: EmbeddingRows) -> tuple[Rows, tuple[int, ...]]:
        num_learners = self.sampler.num_learners
        assignments = self._cluster(points)
        usable = usable_clusters(
            assignments, self.images.known_labels, num_learners
        )
        centroids = centroids_of(points, assignments, num_learners)
        assignments = merge_unusable(assignments, centroids, usable)
        merged = tuple(np.flatnonzero(~usable).tolist())
        if merged:
            logger.warning(
                "Clusters %s have fewer than two classes with two images. "
                "Their images are moved to the nearest usable cluster, and "
                "their learners pause until the next division.",
                list(merged),
            )
        if self._assignments is not None:
            assignments = match_learners(
                assignments, self._assignments, num_learners
            )
        return assignments, merged

    def _cluster(self, points: EmbeddingRows) -> Rows:
        num_learners = self.sampler.num_learners
        if self.partition == "random":
            return random_partition(len(points), num_learners, self.seed)
        if self.partition == "labels":
            return label_partition(self.images.known_labels, num_learners)
        return kmeans(
            points,
            num_learners,
            iterations=self.iterations,
            seed=self.seed,
            sample=self.sample,
        )


def _feature_model(model: keras.Model, examples: Examples) -> keras.Model:
    """The model of unit-length pooled features, as in the released code."""
    unit = keras.layers.UnitNormalization(dtype="float32")
    if isinstance(examples, FeatureSet):
        given = symbolic(examples)
        pooled = model.head.pool(given[FEATURES], given.get(MASK))
        return keras.Model(given, unit(pooled))
    x = keras.tree.map_structure(
        lambda spec: keras.Input(batch_shape=spec.shape, dtype=spec.dtype),
        input_specs(model),
    )
    pooled = model.head.pool(model.backbone(x))
    features = keras.Model(x, unit(pooled))
    return View.of(model).attach_to(features) if model.view else features
