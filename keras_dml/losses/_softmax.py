"""Softmax losses on pairs: NT-Xent, N-pair, supervised contrastive."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.labels import is_multi_hot
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs, PairWeights
from keras_dml.losses.reductions import masked_logsumexp
from keras_dml.utils.types import Fraction, Positive, Tensor


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

    When to use it:
        Two views of each image without labels; pairs, such as questions
        and answers, with the rest of the batch as negatives. Large
        batches.

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
        >>> x = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> # (log(1 + exp(0 − 0.6)) + log(1 + exp(0.8 − 0.6))) / 2
        >>> round(float(NTXentLoss(temperature=1.0)([0, 0, 1], x)), 4)
        0.6178

    Reference:
        Chen et al., "A Simple Framework for Contrastive Learning of Visual
        Representations", ICML 2020, Eq. 1, https://arxiv.org/abs/2002.05709.
    """

    def values(self, pairs: Pairs) -> Tensor:
        positive, negative = self.mined(pairs)
        positive_weights, negative_weights = pairs.weights
        logits = -pairs.distances / self.temperature
        negatives = masked_logsumexp(
            logits, ops.cast(negative, "bool"), weights=negative_weights
        )
        terms = ops.softplus(negatives - logits)
        return self.reduce(terms, positive, positive_weights)


@LOSSES.register(
    "n_pair", examples={"normalize": True, "distance": "euclidean"}
)
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

    When to use it:
        Embeddings whose length means something; otherwise `NTXentLoss`.

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
        - Elsewhere: N-pairs, multi-class N-pair loss.

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

    When to use it:
        Class-balanced batches with several images per class; the
        positives of an anchor share one softmax.

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
        - Elsewhere: SupCon.

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


@LOSSES.register(
    "multi_sup_con", examples={"threshold": 0.4, "weighted": False}
)
class MultiSupConLoss(SupConLoss):
    r"""Multi-label SupCon: examples attract by the overlap of their labels.

    For an anchor $a$,

    $$
    \ell_a = -\frac{1}{|P|} \sum_{p \in P} J(a, p) \log
    \frac{e^{s(a, p) / \tau}}{\sum_{k \ne a} e^{s(a, k) / \tau}} ,
    \qquad J(a, p) = \frac{|L_a \cap L_p|}{|L_a \cup L_p|} ,
    $$

    where $J$ is the Jaccard overlap of two label sets, $P$ are the examples
    with $J$ ≥ `threshold`, and $k$ runs over all other examples. Terms are the
    anchors that have a positive. `pair_weights` multiply the contribution of
    each p, and the exponentials of negative pairs.

    Class ids and relation matrices are also accepted; J is then 1, and the loss
    is SupCon.

    When to use it:
        Several labels per example, if a pair that shares more of them
        should be closer.

    Labels:
        (B, C) booleans that mark the labels of each example; or (B,) class ids
        or a (B, R) relation matrix, as for `SupConLoss`.

    Args:
        threshold: Smallest overlap of a positive pair, between 0 and 1.
        weighted: Whether J multiplies the contribution of each p. Otherwise,
            all positives count equally.
        temperature: τ.
        distance, mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `threshold` is not between 0 and 1, or `temperature` is
            not positive.

    Deviations:
        - The default of `temperature` is that of SupCon rather than the 0.07 of
          the code that this loss follows. pytorch-metric-learning 3 does not
          use weights, and requires an overlap above the threshold rather than
          at least equal to it.

    Also known as:
        - pytorch-metric-learning: `MultiSupConLoss`, from its version 3 on, has
          `weighted=False` and wants an overlap above the threshold, not at it.

    Example:
        `MultiSupConLoss(threshold=0.5)(label_sets, embeddings)`

    Reference:
        Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, Eq. 2,
        https://arxiv.org/abs/2004.11362; with label sets:
        https://github.com/WolodjaZ/MultiSupContrast.
    """

    def __init__(
        self,
        threshold: Fraction = 0.3,
        weighted: bool = True,
        temperature: float = 0.1,
        distance: DistanceLike = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(temperature, distance, mining, reduction, **kwargs)
        self.threshold = threshold
        self.weighted = weighted

    def per_example(
        self,
        labels: Tensor,
        embeddings: Tensor,
        ref_labels: Tensor | None = None,
        ref_embeddings: Tensor | None = None,
        pair_weights: PairWeights | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        sets = ops.convert_to_tensor(labels)
        if is_multi_hot(sets):
            ref_sets = sets if ref_labels is None else ref_labels
            first = ops.cast(sets, "float32")
            second = ops.cast(ops.convert_to_tensor(ref_sets), "float32")
            both = ops.matmul(first, ops.transpose(second))
            sizes = ops.sum(first, axis=1), ops.sum(second, axis=1)
            either = sizes[0][:, None] + sizes[1][None, :] - both
            # The Jaccard index, (B, R); 0 if both sets are empty.
            overlap = both / ops.where(either > 0, either, 1.0)
            labels = ops.cast(overlap >= self.threshold, "int32")
            ref_labels = None
            if self.weighted:
                positive, negative = pair_weights or (1.0, 1.0)
                ones = ops.ones_like(overlap)
                pair_weights = overlap * positive, ones * negative
        return super().per_example(
            labels,
            embeddings,
            ref_labels,
            ref_embeddings,
            pair_weights,
            mask,
        )

    def values(self, pairs: Pairs) -> Tensor:
        positive, negative = self.mined(pairs)
        positive_weights, negative_weights = pairs.weights
        logits = -pairs.distances / self.temperature
        is_positive = ops.cast(positive, "bool")
        everything = ops.logical_or(is_positive, ops.cast(negative, "bool"))
        exponentials = None
        if negative_weights is not None:
            exponentials = ops.where(is_positive, 1.0, negative_weights)
        log_total = masked_logsumexp(logits, everything, weights=exponentials)
        share = ops.cast(positive, "float32")
        count = ops.sum(share, axis=1)
        if positive_weights is not None:
            share = share * ops.where(is_positive, positive_weights, 0.0)
        terms = ops.where(is_positive, share * (log_total - logits), 0.0)
        divisor = ops.where(count > 0, count, 1.0)
        return self.reduce(ops.sum(terms, axis=1) / divisor, count > 0)
