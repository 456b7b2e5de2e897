"""SurrogateLabels: what images have in common across classes (MIC)."""

from typing import Any, Literal, TypeAlias

import numpy as np

from keras_dml.callbacks.clustering import (
    Clustering,
    centroids_of,
    feature_model,
)
from keras_dml.data import SurrogateSampler
from keras_dml.utils.lazy_rows import EmbeddingRows
from keras_dml.utils.types import Count, FloatArray, Labels, Units

Standardization: TypeAlias = Literal["mean_std", "mean"]


def standardize(
    points: EmbeddingRows, labels: Labels, by: Standardization = "mean_std"
) -> FloatArray:
    """Removes from every point what its class has in common.

    z = (x − μ_c) / σ_c, with mean and standard deviation of each dimension
    within class c. What is left varies within classes: pose, light, background.

    Args:
        points: (N, D).
        labels: Class of every point, (N,).
        by: "mean_std"; or "mean", z = x − μ_c.

    Returns:
        (N, D) float32. A dimension that is constant within a class is 0 there;
        so are all dimensions in a class of one image.
    """
    _, classes = np.unique(labels, return_inverse=True)
    count = int(classes.max()) + 1
    means = centroids_of(points, classes, count).astype(np.float32)
    centered = np.asarray(points, np.float32) - means[classes]
    if by == "mean_std":
        variances = centroids_of(np.square(centered), classes, count)
        # Rounding leaves some variance where there is none.
        deviations = np.sqrt(np.where(variances > 1e-12, variances, np.inf))
        centered /= deviations.astype(np.float32)[classes]
    return centered


class SurrogateLabels(Clustering):
    """Finds labels that go across classes, for the auxiliary encoder of MIC.

    Before epoch 0 and then every `every` epochs: embed all training images in
    their test view, standardize the unit pooled features within each class,
    cluster them with K-means, and give every image the number of its cluster
    as its surrogate label. New clusters take the numbers of the old ones that
    they have most images in common with, so that loss variables of a surrogate
    class remain its own.

    It writes `recluster_seconds` into the logs, so place it before callbacks
    that read them.

    Args:
        images: The training set, as given to the pipeline.
        sampler: The `SurrogateSampler` of the pipeline.
        num_surrogates: Number of surrogate classes, which `methods.mic` has
            been given as well.
        every: Epochs between clusterings, T.
        standardization: "mean_std" (paper): subtract the class mean and divide
            by the class's standard deviation. "mean" only subtracts, which is
            the default of the released code.
        iterations: K-means iterations.
        sample: Number of random images from which K-means finds its centroids,
            see `evaluation.kmeans`; by default all.
        batch_size: Number of images embedded at a time.
        seed: Seed of K-means.

    Attributes:
        divisions: A `Division` for every clustering.

    Raises:
        ValueError: If an argument is not as described, or there are fewer
            images than surrogate classes.

    Deviations:
        - The features are always those of the last layer. The released code
          finds the first labels in the features of an early stage, and later
          ones in the auxiliary embedding, without standardizing it.

    Reference:
        Roth et al., "MIC: Mining Interclass Characteristics for Improved
        Metric Learning", ICCV 2019, https://arxiv.org/abs/1909.11574.
    """

    sampler_class = SurrogateSampler

    def __init__(
        self,
        images: Any,
        sampler: SurrogateSampler,
        num_surrogates: Units = 30,
        every: Count = 3,
        *,
        standardization: Standardization = "mean_std",
        iterations: int = 20,
        sample: Count | None = None,
        batch_size: int = 256,
        seed: int = 0,
    ) -> None:
        super().__init__(
            self._check_images(images, sampler),
            sampler,
            num_surrogates,
            every,
            iterations=iterations,
            sample=sample,
            batch_size=batch_size,
            seed=seed,
        )
        self.standardization = standardization

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.sampler.epoch = epoch
        if self._assignments is None or epoch % self.every == 0:
            self._divide(epoch)

    def _points(self) -> FloatArray:
        features = self._outputs_of(feature_model(self.model, self.images))
        return standardize(
            features, self.images.known_labels, self.standardization
        )
