"""Softmax over neighbors: NCA, the instance loss, decoupled contrastive."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES, MetricLoss
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Batch, Pairs
from keras_dml.losses.reductions import masked_logsumexp
from keras_dml.utils.types import Positive, Tensor

# A value below it is an empty sum; see `masked_logsumexp`.
_EMPTY = -1e29


@LOSSES.register("nca")
class NCALoss(PairLoss):
    r"""NCA: the probability that the nearest neighbor has the same class.

    For an anchor $a$ with positives $P$,

    $$
    \ell_a = -\log \frac{\sum_{p \in P} e^{-d(a, p) / T}}
    {\sum_{k \ne a} e^{-d(a, k) / T}} .
    $$

    An anchor picks its neighbor by a softmax over negative squared distances.
    Terms are the anchors that have a positive; `pair_weights` multiply the
    exponential of each pair.

    When to use it:
        Classes with several clusters: one close positive is enough.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        temperature: T.
        distance: As for `PairLoss`; squared Euclidean in the paper.
        mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Deviations:
        - This is the second of the paper's two objectives, Σ log p_i; the
          first, Σ p_i, is the expected number of correct neighbors.
        - The paper's embedding is linear and not normalized; the squared
          distances of unit vectors are at most 4, which requires a lower
          temperature.

    Also known as:
        - pytorch-metric-learning: `NCALoss(softmax_scale)` is
          `NCALoss(temperature=1 / softmax_scale)`.
        - TF Similarity: `SoftNearestNeighborLoss(temperature=T)` is
          `NCALoss(T)`.

    Example:
        >>> x = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> # (log(1 + exp(0.8 − 2)) + log(1 + exp(0.8 − 0.4))) / 2
        >>> round(float(NCALoss()([0, 0, 1], x)), 4)
        0.5881

    Reference:
        Goldberger et al., "Neighbourhood Components Analysis", NIPS 2004.
    """

    needs_triplets = True

    def __init__(
        self,
        temperature: Positive = 1.0,
        distance: DistanceLike = "squared",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.temperature = temperature

    def values(self, pairs: Pairs) -> Tensor:
        masks = self.mined_masks(pairs)
        logits = -pairs.distances / self.temperature
        same, other = (  # (B, 1)
            masked_logsumexp(logits, mask, weights=weights)
            for mask, weights in zip(masks, pairs.weights, strict=True)
        )
        # An anchor whose positives all have weight 0 has nothing to gain.
        terms = ops.where(same > _EMPTY, ops.softplus(other - same), 0.0)
        return self.reduce(terms[:, 0], ops.any(masks[0], axis=1))


@LOSSES.register("instance", examples={"gamma": 9.0})
class InstanceLoss(MetricLoss):
    r"""Instance loss: each example is its own class, against all negatives.

    For each example $a$ with negatives $N_a$,

    $$
    \ell_a = -\log \frac{e^{\gamma}}
    {e^{\gamma} + \sum_{n \in N_a} e^{\gamma s(a, n)}} ,
    $$

    where s is the cosine similarity, which is 1 for an example with itself. The
    loss spreads negatives apart but does not pull examples together, so it also
    works without known classes: number the images. Terms are examples;
    `pair_weights` multiply the exponentials of negative pairs.

    When to use it:
        Without labels, or beside another loss to spread examples out.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`. If there are no
        classes, the numbers of the images.

    Args:
        gamma: Scale γ of the similarities.
        reduction, **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `gamma` is not positive.

    Deviations:
        - The classes are the examples of the batch, as in
          pytorch-metric-learning. The paper learns a vector for each
          instance of the training set:
          `NormalizedSoftmaxLoss(num_classes=instances, temperature=1 / 64)`.
        - Other examples of the anchor's class are neither classes nor targets.
          pytorch-metric-learning uses the column whose number is the anchor's
          class as the target, whichever example it holds. Both agree if every
          example has its own class.

    Also known as:
        - pytorch-metric-learning: `InstanceLoss(gamma)`, where every example
          has a class of its own.

    Example:
        `InstanceLoss(gamma=8.0)(np.arange(16), embeddings)`

    Reference:
        Zheng et al., "Dual-Path Convolutional Image-Text Embeddings with
        Instance Loss", ACM TOMM 2020, https://arxiv.org/abs/1711.05535.
    """

    weights_pairs = True
    needs_positives = False  # It only spreads.

    def __init__(
        self, gamma: Positive = 64.0, reduction: str = "mean", **kwargs: Any
    ) -> None:
        super().__init__(reduction, **kwargs)
        self.gamma = gamma

    def call(self, batch: Batch) -> Tensor:
        pairs = batch.compare("cosine")
        log_totals = masked_logsumexp(
            -self.gamma * (1.0 + pairs.distances),
            pairs.negative,
            add_one=True,
            weights=pairs.weights[1],
        )
        return self.reduce(log_totals[:, 0])


@LOSSES.register("decoupled_contrastive", examples={"sigma": 0.4})
class DecoupledContrastiveLoss(PairLoss):
    r"""Decoupled contrastive: NT-Xent without the positive in the denominator.

    For each positive pair, with the negatives $N_a$ of the anchor,

    $$
    \ell_{ap} = -w_{ap} \frac{s(a, p)}{\tau} +
    \log \sum_{n \in N_a} e^{s(a, n) / \tau} ,
    $$

    with $w = 1$, or, with `sigma`,

    $$
    w_{ap} = 2 - \frac{e^{s(a, p) / \sigma}}
    {\operatorname{mean}_{(b, q)} e^{s(b, q) / \sigma}} ,
    $$

    with the mean over all positive pairs. Without the positive in the
    denominator, easy pairs keep their gradient, and training works well with
    small batches. The loss can be negative.

    Terms are the positive pairs of anchors that have a negative;
    `pair_weights` multiply them, and the exponentials of negative pairs.

    When to use it:
        Small batches; two views of each image without labels.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        temperature: τ.
        sigma: Width σ of the weights of DCLW, w = 2 − exp(s(a, p)/σ) /
            E[exp(s/σ)], which favor distant positives; E is the mean over all
            positive pairs. The paper uses 0.5. None: w = 1 (DCL).
        distance: As for `PairLoss`; cosine similarity in the paper.
        mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `temperature` or `sigma` is not positive.

    Deviations:
        - E is a mean, as in the paper. A common reimplementation divides by the
          sum instead, which makes w close to 2 for every pair.
        - The gradient passes through w.

    Also known as:
        - pytorch-metric-learning: `DecoupledContrastiveLoss`, from its version
          3 on; not compared.
        - Elsewhere: DCL, and with `sigma` DCLW.

    Example:
        `DecoupledContrastiveLoss(sigma=0.5)(labels, embeddings)`

    Reference:
        Yeh et al., "Decoupled Contrastive Learning", ECCV 2022,
        https://arxiv.org/abs/2110.06848.
    """

    needs_triplets = True

    def __init__(
        self,
        temperature: Positive = 0.1,
        sigma: Positive | None = None,
        distance: DistanceLike = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.temperature = temperature
        self.sigma = sigma

    def values(self, pairs: Pairs) -> Tensor:
        positive, negative = self.mined(pairs)
        positive_weights, negative_weights = pairs.weights
        positive = ops.cast(positive, "float32") * ops.cast(
            ops.any(ops.cast(negative, "bool"), axis=1, keepdims=True),
            "float32",
        )
        similarity = -pairs.distances
        logits = similarity / self.temperature
        negatives = masked_logsumexp(
            logits, ops.cast(negative, "bool"), weights=negative_weights
        )
        if self.sigma is not None:
            powers = ops.exp(similarity / self.sigma)
            count = ops.sum(positive)
            mean = ops.sum(positive * powers) / ops.where(count > 0, count, 1.0)
            logits *= 2.0 - powers / ops.where(count > 0, mean, 1.0)
        # Negatives that all have weight 0 leave nothing to compare with.
        terms = ops.where(negatives > _EMPTY, negatives - logits, 0.0)
        return self.reduce(terms, positive, positive_weights)
