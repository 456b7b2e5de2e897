"""Clustering: the base of callbacks that cluster the training set."""

import logging
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import numpy as np

from keras_dml.data import Examples, Sampler, View
from keras_dml.data.feature_set import MASK, FeatureSet, symbolic_inputs
from keras_dml.data.reading import as_examples
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import done_by_chief
from keras_dml.embedding.in_memory import embed_shares
from keras_dml.evaluation import kmeans
from keras_dml.model.embedding_model import backbone_features
from keras_dml.model.generated import input_specs
from keras_dml.utils.arguments import Checked, check_count
from keras_dml.utils.lazy_rows import EmbeddingRows
from keras_dml.utils.types import Count, FloatArray, Rows
from keras_dml.utils.vectors import CHUNK, blocks

logger = logging.getLogger(__name__)


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


def centroids_of(
    points: EmbeddingRows, assignments: Rows, num_learners: int
) -> FloatArray:
    """Mean of every cluster, (K, D); zeros for an empty one."""
    sums = np.zeros((num_learners, points.shape[1]), np.float64)
    for rows in blocks(len(points), CHUNK):
        np.add.at(sums, assignments[rows], points[rows])
    counts = np.bincount(assignments, minlength=num_learners)
    return sums / np.maximum(counts, 1)[:, None]


@dataclass(frozen=True)
class Division:
    """The result and the cost of one re-clustering.

    Attributes:
        epoch: The epoch before which it took place, counted from 0.
        sizes: Number of images in each cluster.
        kept: Share of the images that stayed in their cluster; None for the
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

    def __str__(self) -> str:
        sizes = ", ".join(str(size) for size in self.sizes)
        stayed = "" if self.kept is None else f"; {self.kept:.0%} stayed"
        return (
            f"Division before epoch {self.epoch + 1}: clusters of {sizes} "
            f"images{stayed} ({self.seconds:.1f} s)."
        )


class Clustering(Checked, keras.callbacks.Callback):
    """Base of callbacks that hand clusters of the training set to a sampler.

    It embeds all training images in their test view, clusters them, gives the
    new clusters the numbers of the old ones, and keeps a report of each
    division. A subclass decides when, by calling `_divide`, and may change
    what is clustered, `_points`, and how, `_assign`.

    Args:
        images: The training set, as given to the pipeline.
        sampler: The sampler of the pipeline, of the class `sampler_class`.
        num_clusters: Number of clusters.
        every: Number of epochs between divisions, T.
        iterations: Number of K-means iterations.
        sample: Number of random images from which K-means computes centroids;
            see `evaluation.kmeans`. None for all images.
        batch_size: Number of images to embed at a time.
        seed: Seed of K-means.

    Attributes:
        divisions: A `Division` for every clustering.

    Raises:
        ValueError: If an argument is not as described, or there are fewer
            images than clusters.
    """

    logged_names = frozenset({"recluster_seconds"})
    sampler_class: ClassVar[type[Sampler]]

    def __init__(
        self,
        images: Any,
        sampler: Any,
        num_clusters: int,
        every: Count,
        *,
        iterations: int,
        sample: int | None,
        batch_size: int,
        seed: int,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        if len(images) != len(sampler.labels):
            raise ValueError(
                f"`images` of {owner} must be the images of `sampler`. "
                f"Received: {len(images)} images and a sampler for "
                f"{len(sampler.labels)}."
            )
        if len(images) < num_clusters:
            raise ValueError(
                f"`images` of {owner} must have at least one image per "
                f"cluster. Received: {len(images)} images and "
                f"{num_clusters} clusters. Use fewer clusters."
            )
        if sample is not None:
            check_count(owner, "sample", sample, num_clusters)
        self.images: Examples = images
        self.sampler = sampler
        self.num_clusters = num_clusters
        self.every = every
        self.iterations = iterations
        self.sample = sample
        self.batch_size = batch_size
        self.seed = seed
        self.divisions: list[Division] = []
        self._assignments: Rows | None = None

    @classmethod
    def _check_images(cls, images: Any, sampler: Any) -> Examples:
        """Checks the sampler and the training set, which it returns."""
        owner, expected = cls.__name__, cls.sampler_class.__name__
        examples = as_examples(images, "images", owner)
        if not isinstance(sampler, cls.sampler_class):
            raise ValueError(
                f"`sampler` of {owner} must be the {expected} of the pipeline. "
                f"Received: {sampler!r}. Use {expected}(images.labels, …)."
            )
        return examples

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["recluster_seconds"] = sum(
                x.seconds for x in self.divisions[-1:] if x.epoch == epoch
            )

    def get_state(self) -> dict[str, Any]:
        """The state of this callback, for `Resume`."""
        return {
            "assignments": self._assignments,
            "divisions": [vars(x) for x in self.divisions],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`."""
        self._assignments = state["assignments"]
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
        sizes = np.bincount(assignments, minlength=self.num_clusters)
        share = None
        if previous is not None:
            share = float(np.mean(assignments == previous))
        division = Division(
            epoch=epoch,
            sizes=tuple(sizes.tolist()),
            kept=share,
            merged=merged,
            seconds_embedding=embedded - start,
            seconds_clustering=done - embedded,
        )
        self.divisions.append(division)
        logger.info("%s", division)

    def _points(self) -> EmbeddingRows:
        """The points to cluster, (N, D)."""
        return self._outputs_of(self.model)

    def _outputs_of(self, model: keras.Model) -> EmbeddingRows:
        """The outputs of a model for all training images."""
        return embed_shares(
            model, self.images, self.batch_size, strategy_of(self.model)
        )

    def _assign_once(
        self, points: EmbeddingRows
    ) -> tuple[Rows, tuple[int, ...]]:
        """Assignments of the chief, as rounding may differ between machines."""

        def assign() -> list[list[int]]:
            assignments, merged = self._assign(points)
            if self._assignments is not None:
                assignments = match_learners(
                    assignments, self._assignments, self.num_clusters
                )
            return [assignments.tolist(), list(merged)]

        assignments, merged = done_by_chief(assign, strategy_of(self.model))
        return np.array(assignments, np.int64), tuple(merged)

    def _assign(self, points: EmbeddingRows) -> tuple[Rows, tuple[int, ...]]:
        """The cluster of every image, (N,), and the clusters merged away."""
        return self._kmeans(points), ()

    def _kmeans(self, points: EmbeddingRows) -> Rows:
        return kmeans(
            points,
            self.num_clusters,
            iterations=self.iterations,
            seed=self.seed,
            sample=self.sample,
        )


def feature_model(model: keras.Model, examples: Examples) -> keras.Model:
    """The model of unit-length pooled features, as in the released code."""
    unit = keras.layers.UnitNormalization(dtype="float32")
    if isinstance(examples, FeatureSet):
        inputs = symbolic_inputs(examples)
        features = backbone_features(model.backbone, inputs)
        pooled = model.head.pool(features, inputs.get(MASK))
        return keras.Model(inputs, unit(pooled))
    x = keras.tree.map_structure(
        lambda spec: keras.Input(batch_shape=spec.shape, dtype=spec.dtype),
        input_specs(model),
    )
    pooled = model.head.pool(model.backbone(x))
    features = keras.Model(x, unit(pooled))
    return View.of(model).attach_to(features) if model.view else features
