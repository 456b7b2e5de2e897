"""Redundancy reduction without negatives: VICReg and Barlow Twins."""

import math
from typing import Any, Literal

from keras import ops

from keras_dml.losses.base import LOSSES, MetricLoss
from keras_dml.losses.distances import diagonal
from keras_dml.losses.pairs import Batch
from keras_dml.losses.reductions import scale_to_mean
from keras_dml.utils.types import Positive, Tensor


@LOSSES.register(
    "vicreg",
    examples={
        "invariance": 2.0,
        "variance": 3.0,
        "covariance": 4.0,
        "target": None,
        "epsilon": 1e-3,
        "reduction": "mean",
        "normalize": True,
    },
)
class VICRegLoss(MetricLoss):
    r"""VICReg: views agree; dimensions vary but do not covary.

    For two views $Z$ and $Z'$ of a batch, with $D$ dimensions,

    $$
    \mathcal{L} = \lambda \, s(Z, Z') + \mu \left( v(Z) + v(Z') \right) +
    \nu \left( c(Z) + c(Z') \right) ,
    $$

    $$
    s = \operatorname{mean} \frac{\|z - z'\|^2}{D} , \qquad
    v = \frac{1}{D} \sum_{i} \left[ \gamma -
    \sqrt{C_{ii} + \epsilon} \right]_+ , \qquad
    c = \frac{1}{D} \sum_{i \ne j} C_{ij}^2 ,
    $$

    where $C$ is the covariance matrix of a view, and $s$ is the mean over the
    positive pairs.

    Z is the batch, and Z' are the references: second views, with the same
    numbers for the same images. Without references, Z' = Z, and the positives
    in a batch are each other's views. Examples that are ignored in all pairs
    are left out.

    The invariance term is computed for each anchor; variance and covariance are
    those of the whole batch and are the same for every example.

    When to use it:
        Two views of each image without labels, and without negatives.

    Labels:
        (B,) integers that number the images: views of the same image have the
        same number. With class ids, all images of a class count as views of
        each other.

    Args:
        invariance: λ.
        variance: μ.
        covariance: ν.
        target: γ, the smallest standard deviation of a dimension without a
            penalty. None: 1/√D, that of evenly spread unit-length embeddings,
            which cannot exceed it.
        epsilon: ε.
        reduction: Must be "mean".
        normalize: As for `MetricLoss`; the paper does not normalize.
        **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `target` or `epsilon` is not positive, or `reduction` is
            not "mean".

    Requirements:
        Embeddings of methods have unit length: use `target=None` for them.

    Deviations:
        - The authors' code and pytorch-metric-learning halve the variances:
          `variance=12.5`.

    Also known as:
        - pytorch-metric-learning: `VICRegLoss()` is
          `VICRegLoss(variance=12.5)`, its `ref_emb` being `ref_embeddings`.
        - TF Similarity: `VicReg()` is near `VICRegLoss(variance=12.5)`; it
          divides variances by N, not N − 1.

    Example:
        `VICRegLoss(target=None)(np.arange(16) // 2, embeddings)`

    Reference:
        Bardes et al., "VICReg: Variance-Invariance-Covariance Regularization
        for Self-Supervised Learning", ICLR 2022, Eq. 1 to 6,
        https://arxiv.org/abs/2105.04906.
    """

    needs_negatives = False

    def __init__(
        self,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        target: Positive | None = 1.0,
        epsilon: Positive = 1e-4,
        reduction: Literal["mean"] = "mean",
        normalize: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction, normalize, **kwargs)
        self.epsilon = epsilon
        self.invariance = invariance
        self.variance = variance
        self.covariance = covariance
        self.target = target

    def call(self, batch: Batch) -> Tensor:
        pairs = batch.compare("squared")
        used = ops.logical_or(pairs.positive, pairs.negative)
        spread = self._spread(batch.embeddings, ops.any(used, axis=1))
        spread += self._spread(batch.references, ops.any(used, axis=0))
        apart = self.reduce(
            pairs.distances / pairs.embedding_dim, pairs.positive
        )
        return self.invariance * apart + spread

    def _spread(self, z: Tensor, used: Tensor) -> Tensor:
        """μ v + ν c of the (B, D) rows that are `used`."""
        dim = z.shape[1]
        weights = ops.cast(used, "float32")[:, None]
        count = ops.sum(weights)
        mean = ops.sum(weights * z, axis=0) / ops.maximum(count, 1.0)
        centered = weights * (z - mean)
        free = ops.maximum(count - 1.0, 1.0)
        covariance = ops.matmul(ops.transpose(centered), centered) / free
        is_variance = diagonal(covariance)
        variance = ops.sum(ops.where(is_variance, covariance, 0.0), axis=0)
        target = 1.0 / math.sqrt(dim) if self.target is None else self.target
        lack = ops.relu(target - ops.sqrt(variance + self.epsilon))
        off_diagonal = ops.where(is_variance, 0.0, covariance)
        total = self.variance * ops.mean(lack)
        total += (self.covariance / dim) * ops.sum(ops.square(off_diagonal))
        return ops.where(count > 1, total, 0.0)


@LOSSES.register(
    "barlow_twins",
    examples={
        "redundancy": 0.1,
        "epsilon": 1e-3,
        "reduction": "mean",
        "normalize": True,
    },
)
class BarlowTwinsLoss(MetricLoss):
    r"""Barlow Twins: each dimension correlates only with itself across views.

    With the (D, D) correlation $C$, over all positive pairs, between the
    dimensions of one example and those of the other,

    $$
    \mathcal{L} = \sum_i \left( 1 - C_{ii} \right)^2 +
    \lambda \sum_{i \ne j} C_{ij}^2 .
    $$

    The positives of an anchor are its views: references (second views, with the
    same numbers for the same images), or the other examples of its class in the
    batch. `pair_weights` multiply the contribution of each pair to the
    correlation.

    The loss is defined for the whole batch; it is divided equally among the
    anchors that have a positive.

    When to use it:
        Two views of each image without labels, and without negatives.

    Labels:
        (B,) integers that number the images: views of the same image have the
        same number. With class ids, all images of a class count as views of
        each other.

    Args:
        redundancy: λ.
        epsilon: Added to variances, as in batch normalization.
        reduction: Must be "mean".
        normalize: As for `MetricLoss`; the paper does not normalize.
        **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `epsilon` is not positive, or `reduction` is not "mean".

    Deviations:
        - λ is 0.0051, as in the authors' code; the paper states 0.005.
        - The paper's batches have two views per image; with more positives, an
          example counts once for each of its pairs in means and variances.

    Also known as:
        - TF Similarity: `Barlow(lambda_)` is `BarlowTwinsLoss(lambda_,
          epsilon=1e-12)`, its second argument being `ref_embeddings`.

    Example:
        `BarlowTwinsLoss()(np.arange(16) // 2, embeddings)`

    Reference:
        Zbontar et al., "Barlow Twins: Self-Supervised Learning via Redundancy
        Reduction", ICML 2021, Eq. 1 and 2, https://arxiv.org/abs/2103.03230.
    """

    weights_pairs = True
    needs_negatives = False

    def __init__(
        self,
        redundancy: float = 0.0051,
        epsilon: Positive = 1e-5,
        reduction: Literal["mean"] = "mean",
        normalize: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction, normalize, **kwargs)
        self.epsilon = epsilon
        self.redundancy = redundancy

    def call(self, batch: Batch) -> Tensor:
        counts = ops.cast(batch.compare("dot").counts()[0], "float32")
        of_anchor, of_reference = (ops.sum(counts, axis=i) for i in (1, 0))
        total = ops.sum(of_anchor)
        count = ops.where(total > 0, total, 1.0)
        anchors = self._standardize(batch.embeddings, of_anchor, count)
        references = self._standardize(batch.references, of_reference, count)
        correlation = (
            ops.matmul(ops.transpose(anchors), ops.matmul(counts, references))
            / count
        )
        identity = ops.cast(diagonal(correlation), "float32")
        errors = ops.square(correlation - identity)
        weights = identity + self.redundancy * (1.0 - identity)
        has_positive = ops.cast(of_anchor > 0, "float32")
        value = ops.sum(weights * errors)
        return scale_to_mean(has_positive * value, ops.sum(has_positive))

    def _standardize(self, z: Tensor, weights: Tensor, count: Tensor) -> Tensor:
        weights = weights[:, None]
        centered = z - ops.sum(weights * z, axis=0) / count
        variance = ops.sum(weights * ops.square(centered), axis=0) / count
        return centered * ops.rsqrt(variance + self.epsilon)
