"""Softmax losses on pairs: NT-Xent, N-pair, supervised contrastive."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs
from keras_dml.losses.reductions import masked_logsumexp
from keras_dml.utils.serialization import register_removed
from keras_dml.utils.types import Positive, Tensor


class _SoftmaxLoss(PairLoss):
    """Base: the temperature by which similarities are divided."""

    needs_triplets = True

    def __init__(
        self,
        temperature: Positive = 0.1,
        distance: DistanceLike = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.temperature = temperature


@LOSSES.register("nt_xent")
class NTXentLoss(_SoftmaxLoss):
    r"""NT-Xent (SimCLR, InfoNCE): each positive against all negatives.

    The normalized temperature-scaled cross entropy: for each positive pair,
    with the negatives $N_a$ of the anchor,

    $$
    \ell_{ap} = -\log \frac{e^{s(a, p) / \tau}}
    {e^{s(a, p) / \tau} + \sum_{n \in N_a} e^{s(a, n) / \tau}} .
    $$

    Terms are positive pairs; `pair_weights` multiply them, and the
    exponentials of negative pairs.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        temperature: τ.
        distance, mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Deviations:
        - If an anchor has several positives, the others are not in the
          denominator. SimCLR has one positive per anchor, so both agree.

    Also known as:
        - pytorch-metric-learning: `NTXentLoss(temperature)`, with another
          default, 0.07.
        - TF Similarity: `SimCLRLoss(temperature)` is `2.0 *
          NTXentLoss(temperature)` of both views in one batch;
          `MultiNegativesRankLoss` is near `NTXentLoss(1 / 20)`.
        - sentence-transformers: `MultipleNegativesRankingLoss(scale=20)` is
          `NTXentLoss(1 / 20)`, with the positives as references.
        - Elsewhere: InfoNCE, SimCLR loss, in-batch softmax.

    Example:
        `NTXentLoss(temperature=0.07)(labels, embeddings)`

    Reference:
        Chen et al., "A Simple Framework for Contrastive Learning of Visual
        Representations", ICML 2020, Eq. 1, https://arxiv.org/abs/2002.05709.
    """

    def values(self, pairs: Pairs) -> Tensor:
        positive, negative = self.mined(pairs)
        of_positives, of_negatives = pairs.weights
        logits = -pairs.distances / self.temperature
        negatives = masked_logsumexp(
            logits, ops.cast(negative, "bool"), weights=of_negatives
        )
        terms = ops.softplus(negatives - logits)
        return self.reduce(terms, positive, of_positives)


@LOSSES.register("n_pair")
class NPairLoss(NTXentLoss):
    r"""N-pair loss: NT-Xent on raw inner products, without temperature.

    For each positive pair, with the negatives $N_a$ of the anchor,

    $$
    \ell_{ap} = \log\left( 1 + \sum_{n \in N_a}
    e^{x_a^\top x_n - x_a^\top x_p} \right) ,
    $$

    where all exponents are divided by `temperature`, 1 by default. For the
    paper's batch of N pairs, pass the anchors as `embeddings` and their
    positives as `ref_embeddings`; with a P×K batch, all its pairs are used.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        temperature, distance, **kwargs: As for `NTXentLoss`.
        normalize: As for `MetricLoss`; the paper does not normalize.

    Requirements:
        Without normalization, norms must be limited. The paper uses an L2
        penalty on the embeddings; add it to the layer: `Dense(dim,
        activity_regularizer=keras.regularizers.L2(...))`.

    Also known as:
        - pytorch-metric-learning: `NPairsLoss()` is `NPairLoss(normalize=True)`
          of one pair per class, positives as references.
        - sentence-transformers: `MultipleNegativesRankingLoss(scale=1,
          similarity_fct=dot_score)`, with the positives as references.

    Example:
        `NPairLoss()(labels, embeddings)`

    Reference:
        Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss
        Objective", NIPS 2016, Eq. 7.
    """

    def __init__(
        self,
        temperature: float = 1.0,
        distance: DistanceLike = "dot",
        normalize: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(temperature, distance, normalize=normalize, **kwargs)


@LOSSES.register("sup_con")
class SupConLoss(_SoftmaxLoss):
    r"""Supervised contrastive loss: a softmax of positives against all others.

    For an anchor $a$ with positives $P$,

    $$
    \ell_a = -\frac{1}{|P|} \sum_{p \in P} \log
    \frac{e^{s(a, p) / \tau}}{\sum_{k \ne a} e^{s(a, k) / \tau}} ,
    $$

    where $k$ runs over all other examples, including positives. Terms are the
    anchors that have a positive. `pair_weights` multiply the contribution of
    each p, and the exponential of each k.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        temperature: τ.
        distance, mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Also known as:
        - pytorch-metric-learning: `SupConLoss(temperature)` is
          `SupConLoss(temperature, reduction="mean_nonzero")`, but for a batch
          of one class, which it scores 0.
        - TensorFlow Addons: `NpairsLoss`, of inner products, is
          `SupConLoss(1.0, distance="dot", normalize=False)`, with the
          positives as references.

    Example:
        `SupConLoss(temperature=0.1)(labels, embeddings)`

    Reference:
        Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, Eq. 2,
        https://arxiv.org/abs/2004.11362.
    """

    def values(self, pairs: Pairs) -> Tensor:
        positive, negative = self.mined(pairs)
        logits = -pairs.distances / self.temperature
        used = [ops.cast(counts, "bool") for counts in (positive, negative)]
        everything = ops.logical_or(*used)
        positive = ops.cast(positive, "float32")
        count = ops.sum(positive, axis=1)
        divisor = ops.where(count > 0, count, 1.0)
        if pairs.weights[0] is None:
            log_total = masked_logsumexp(logits, everything)[:, 0]
        else:
            weights = ops.where(used[0], *pairs.weights)
            log_total = masked_logsumexp(logits, everything, weights=weights)
            positive *= ops.where(used[0], weights, 0.0)
            log_total = log_total[:, 0] * (ops.sum(positive, axis=1) / divisor)
        pull = ops.sum(ops.where(used[0], positive * logits, 0.0), axis=1)
        return self.reduce(log_total - pull / divisor, count > 0)


register_removed(
    "keras_dml.tfa>NpairsLoss",
    'SupConLoss(1.0, distance="dot", normalize=False)',
)
