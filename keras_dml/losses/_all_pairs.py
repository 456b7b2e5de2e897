"""Losses on all pairs of an anchor, such as multi-similarity and circle."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.distances import get as get_distance
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs, in_both
from keras_dml.losses.reductions import masked_logsumexp
from keras_dml.utils.types import Positive, Share, Tensor


@LOSSES.register("multi_similarity", examples={"beta": 30.0, "threshold": 0.4})
class MultiSimilarityLoss(PairLoss):
    r"""Multi-similarity loss: hard pairs of an anchor, weighted by similarity.

    For an anchor $a$ with positives $P$ and negatives $N$ chosen by mining,

    $$
    \ell_a = \frac{1}{\alpha} \log\left( 1 + \sum_{p \in P}
    e^{-\alpha (s(a, p) - \lambda)} \right) + \frac{1}{\beta}
    \log\left( 1 + \sum_{n \in N} e^{\beta (s(a, n) - \lambda)} \right) .
    $$

    Terms are all B anchors ("mean" is the paper's 1/m Σ); `pair_weights`
    multiply the exponential of each pair.

    When to use it:
        A first loss to try on class-balanced batches: it uses many
        pairs, and little needs tuning.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        alpha: Scale α of the positives.
        beta: Scale β of the negatives.
        threshold: λ, the similarity that separates close from distant pairs.
        distance: A name in `keras_dml.losses.distances.DISTANCES`; the paper
            uses cosine similarity.
        mining: As for `PairLoss`; a pair counts once, even if mining picks it
            repeatedly. "all" disables mining.
        reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `alpha` or `beta` is not positive.

    Deviations:
        - λ is 0.5, as in the authors' released code; the paper states 1, which
          no similarity can exceed.

    Also known as:
        - pytorch-metric-learning: `MultiSimilarityLoss()` with
          `MultiSimilarityMiner()` is the default here; without a miner it is
          `MultiSimilarityLoss(mining="all")`.
        - TF Similarity: `MultiSimilarityLoss()` is
          `MultiSimilarityLoss(beta=40.0)`.
        - Elsewhere: MS loss.

    Example:
        >>> x = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> # Anchor 0: log(1 + e^−0.2) / 2 + log(1 + e^−25) / 50 = 0.2991.
        >>> loss = MultiSimilarityLoss(mining="all")
        >>> round(float(loss([0, 0, 1], x)), 4)
        0.3994

    Reference:
        Wang et al., "Multi-Similarity Loss with General Pair Weighting for Deep
        Metric Learning", CVPR 2019, Eq. 15, https://arxiv.org/abs/1904.06627.
    """

    def __init__(
        self,
        alpha: Positive = 2.0,
        beta: Positive = 50.0,
        threshold: float = 0.5,
        distance: DistanceLike = "cosine",
        mining: Any = "multi_similarity",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.alpha = alpha
        self.beta = beta
        self.threshold = threshold

    def values(self, pairs: Pairs) -> Tensor:
        excess = pairs.distances - pairs.metric.orient(self.threshold)
        exponents = self.alpha * excess, -self.beta * excess
        masks = self.mined_masks(pairs)
        pull, push = _log_sums(pairs, masks, *exponents, add_one=True)
        return self.reduce((pull / self.alpha + push / self.beta)[:, 0])


@LOSSES.register("circle", examples={"gamma": 20.0})
class CircleLoss(PairLoss):
    r"""Circle loss: similarities weighted by their distance from the optimum.

    For an anchor $a$ with positives $P$ and negatives $N$,

    $$
    \ell_a = \log\left( 1 + \sum_{n \in N} e^{\gamma \alpha_n (s(a, n) - m)}
    \sum_{p \in P} e^{-\gamma \alpha_p (s(a, p) - 1 + m)} \right) ,
    $$

    $$
    \alpha_p = \left[ 1 + m - s(a, p) \right]_+ , \qquad
    \alpha_n = \left[ s(a, n) + m \right]_+ ,
    $$

    where $s$ is the cosine similarity, and no gradient passes through
    $\alpha_p$ and $\alpha_n$. Terms are the anchors that have both positives
    and negatives; `pair_weights` multiply the exponential of each pair.

    When to use it:
        Class-balanced batches, if pairs should count less the closer
        they are to their optimum.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        margin: m, the radius of the decision boundary; the default is the
            paper's for fine-grained retrieval.
        gamma: Scale γ.
        distance: A similarity in [−1, 1], because the formula has its optimum
            at 1 and −1; by default cosine similarity, as in the paper.
        mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `gamma` is not positive, or `distance` is not a
            similarity.

    Also known as:
        - pytorch-metric-learning: `CircleLoss()` is
          `CircleLoss(reduction="mean_nonzero")`.
        - TF Similarity: `CircleLoss` has the same arguments and another
          formula: log(1 + Σ) of positives plus that of negatives, and a
          gradient through the weights.

    Example:
        `CircleLoss(margin=0.25, gamma=64.0)(labels, embeddings)`

    Reference:
        Sun et al., "Circle Loss: A Unified Perspective of Pair Similarity
        Optimization", CVPR 2020, Eq. 4 to 8, https://arxiv.org/abs/2002.10857.
    """

    needs_triplets = True

    def __init__(
        self,
        margin: float = 0.4,
        gamma: Positive = 80.0,
        distance: DistanceLike = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.gamma = gamma
        if not get_distance(distance).larger_is_closer:
            raise ValueError(
                "`distance` of CircleLoss must be a similarity, because its "
                f"formula requires one. Received: distance={distance!r}. Use "
                '"cosine".'
            )
        self.margin = margin

    def values(self, pairs: Pairs) -> Tensor:
        margin, similarity = self.margin, -pairs.distances
        fixed = ops.stop_gradient(similarity)
        pull = ops.relu(1.0 + margin - fixed) * (1.0 - margin - similarity)
        push = ops.relu(fixed + margin) * (similarity - margin)
        masks = self.mined_masks(pairs)
        pull, push = _log_sums(
            pairs, masks, self.gamma * pull, self.gamma * push
        )
        return self.reduce(ops.softplus(pull + push)[:, 0], in_both(*masks))


@LOSSES.register("lifted_structure", examples={"generalized": True})
class LiftedStructureLoss(PairLoss):
    r"""Lifted structure: positive pairs against all negatives of both examples.

    In the original form (Song et al., Eq. 4), terms are positive pairs, with
    the negatives $N_a$ of $a$ and $N_p$ of $p$:

    $$
    J_{ap} = \log\left( \sum_{k \in N_a} e^{m - d(a, k)} +
    \sum_{l \in N_p} e^{m - d(p, l)} \right) + d(a, p) , \qquad
    \ell_{ap} = \frac{1}{2} \left[ J_{ap} \right]_+^2 .
    $$

    In the generalized form (Hermans et al.), terms are anchors:

    $$
    \ell_a = \left[ \log \sum_{p \in P_a} e^{d(a, p)} +
    \log \sum_{n \in N_a} e^{m - d(a, n)} \right]_+ .
    $$

    With references, the negatives of a positive p are the anchors in the batch
    that are negatives of p. `pair_weights` multiply the terms of positive pairs
    (in the generalized form, their exponentials) and the exponentials of
    negative pairs; for the negatives of p, these are the weights in its column.

    When to use it:
        Class-balanced batches, if a positive pair should be compared
        with the negatives of both of its examples.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        margin: m, in units of `distance`.
        generalized: Whether to use the generalized form instead of the
            original.
        distance, mining, reduction, **kwargs: As for `PairLoss`.

    Also known as:
        - pytorch-metric-learning: `LiftedStructureLoss()`, but with references,
          whose indices it compares with those of anchors;
          `GeneralizedLiftedStructureLoss()` is
          `LiftedStructureLoss(generalized=True)`.
        - TensorFlow Addons: `LiftedStructLoss()` is
          `LiftedStructureLoss(normalize=False)`.

    Example:
        `LiftedStructureLoss(generalized=True)(labels, embeddings)`

    Reference:
        Song et al., "Deep Metric Learning via Lifted Structured Feature
        Embedding", CVPR 2016, Eq. 4, https://arxiv.org/abs/1511.06452; Hermans
        et al., "In Defense of the Triplet Loss for Person Re-Identification",
        2017, Eq. 8.
    """

    needs_triplets = True

    def __init__(
        self,
        margin: float = 1.0,
        generalized: bool = False,
        distance: DistanceLike = "euclidean",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.margin = margin
        self.generalized = generalized

    def values(self, pairs: Pairs) -> Tensor:
        lack = self.margin - pairs.distances
        if self.generalized:
            masks = self.mined_masks(pairs)
            pull, push = _log_sums(pairs, masks, pairs.distances, lack)
            return self.reduce(ops.relu(pull + push)[:, 0], in_both(*masks))
        positive, negative = self.mined(pairs)
        positive_weights, negative_weights = pairs.weights
        negative = ops.cast(negative, "bool")
        of_anchor, of_positive = (  # (B, 1), (1, R)
            masked_logsumexp(lack, negative, axis, weights=negative_weights)
            for axis in (1, 0)
        )
        # Not `ops.logaddexp`: where both are equal, its gradient goes to one.
        top = ops.stop_gradient(ops.maximum(of_anchor, of_positive))
        total = ops.exp(of_anchor - top) + ops.exp(of_positive - top)
        violation = ops.relu(top + ops.log(total) + pairs.distances)
        terms = 0.5 * ops.square(violation)
        return self.reduce(terms, positive, positive_weights)


def _log_sums(
    pairs: Pairs,
    masks: tuple[Tensor, Tensor],
    pull: Tensor,
    push: Tensor,
    add_one: bool = False,
) -> list[Tensor]:
    """(B, 1) each: log Σ exp of positive pairs, and of negative ones."""
    return [
        masked_logsumexp(exponents, used, add_one=add_one, weights=weights)
        for exponents, used, weights in zip(
            (pull, push), masks, pairs.weights, strict=True
        )
    ]


@LOSSES.register(
    "ranked_list",
    examples={
        "balance": 0.3,
        "positive_temperature": 2.0,
        "negative_temperature": 3.0,
        "differentiate_weights": True,
    },
)
class RankedListLoss(PairLoss):
    r"""Ranked list: positives within a sphere, negatives beyond a margin.

    For an anchor $a$, with its positives $P$ farther away than $\alpha - m$ and
    its negatives $N$ closer than $\alpha$,

    $$
    \ell_a = (1 - \lambda) \frac{\sum_{p \in P} w_p
    \left( d(a, p) - (\alpha - m) \right)}{\sum_{p \in P} w_p} + \lambda
    \frac{\sum_{n \in N} w_n \left( \alpha - d(a, n) \right)}
    {\sum_{n \in N} w_n} ,
    $$

    $$
    w_p = e^{T_+ (d(a, p) - (\alpha - m))} , \qquad
    w_n = e^{T_- (\alpha - d(a, n))} .
    $$

    Terms are all B anchors. `pair_weights` multiply the w of each pair in the
    numerators, but not in the denominators.

    When to use it:
        Noisy or varied classes: positives need not coincide.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        alpha: α, the boundary of the negatives, in units of `distance`.
        margin: m, the gap between positives and negatives.
        balance: λ, the weight of the negatives.
        positive_temperature: T₊. With 0, all positives have the same weight.
        negative_temperature: T₋. Larger values give more weight to the hardest
            negatives.
        differentiate_weights: Whether the gradient passes through w, as in
            pytorch-metric-learning. In the paper, w only determines the share
            of each pair in the gradient.
        distance: As for `PairLoss`; Euclidean in the paper.
        mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `margin` is not positive, or `balance` is not in
            [0, 1].

    Deviations:
        - pytorch-metric-learning adds 1e−5 to w in the denominators for every
          example in the batch.
        - Its default for α is 1 + m/2; the default here, 1.2 with m = 0.4,
          agrees with this and with the paper.

    Also known as:
        - pytorch-metric-learning: `RankedListLoss(margin, Tn, imbalance, alpha,
          Tp)` is `RankedListLoss(alpha, margin, imbalance, Tp, Tn,
          differentiate_weights=True)`, but for the 1e−5 that it adds to each
          weight, and for pairs at distance 0, which it leaves out.

    Example:
        `RankedListLoss(alpha=1.2, margin=0.4)(labels, embeddings)`

    Reference:
        Wang et al., "Ranked List Loss for Deep Metric Learning", CVPR 2019, Eq.
        1 to 9, https://arxiv.org/abs/1903.03238.
    """

    def __init__(
        self,
        alpha: float = 1.2,
        margin: Positive = 0.4,
        balance: Share = 0.5,
        positive_temperature: float = 0.0,
        negative_temperature: float = 10.0,
        differentiate_weights: bool = False,
        distance: DistanceLike = "euclidean",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.margin = margin
        self.alpha = alpha
        self.balance = balance
        self.positive_temperature = positive_temperature
        self.negative_temperature = negative_temperature
        self.differentiate_weights = differentiate_weights

    def values(self, pairs: Pairs) -> Tensor:
        alpha = pairs.metric.orient(self.alpha)
        lack = alpha - pairs.distances
        parts = [
            self._mean(violation, counts, weights, temperature)
            for violation, counts, weights, temperature in zip(
                (self.margin - lack, lack),
                self.mined(pairs),
                pairs.weights,
                (self.positive_temperature, self.negative_temperature),
                strict=True,
            )
        ]
        return self.reduce(
            (1.0 - self.balance) * parts[0] + self.balance * parts[1]
        )

    def _mean(
        self,
        violation: Tensor,
        counts: Tensor,
        weights: Tensor | None,
        temperature: float,
    ) -> Tensor:
        """(B,): the weighted mean of the violations above 0."""
        used = ops.logical_and(ops.cast(counts, "bool"), violation > 0)
        exponent = temperature * violation
        if not self.differentiate_weights:
            exponent = ops.stop_gradient(exponent)
        # Shifted, so that no temperature overflows.
        exponent = ops.where(used, exponent, 0.0)
        top = ops.max(exponent, axis=1, keepdims=True)
        factor = ops.where(
            used, ops.exp(exponent - ops.stop_gradient(top)), 0.0
        )
        factor = factor * ops.cast(counts, "float32")
        total = ops.sum(factor, axis=1)
        if weights is not None:
            violation = violation * ops.where(used, weights, 0.0)
        share = ops.sum(ops.where(used, factor * violation, 0.0), axis=1)
        return share / ops.where(total > 0, total, 1.0)
