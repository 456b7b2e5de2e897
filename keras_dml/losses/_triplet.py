"""Triplet losses, and the sum over all mined triplets that they share."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import keras
from annotated_types import Gt, Le
from keras import ops

from keras_dml.losses._histogram import soft_histograms
from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.labels import is_multi_hot, relations
from keras_dml.losses.mining.miner import State, value_at
from keras_dml.losses.mining.selection import Selection
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Batch, Pairs, hinge
from keras_dml.losses.reductions import Terms, reduce_terms
from keras_dml.losses.variables import (
    add_loss_variable,
    check_not_built,
    not_built_error,
)
from keras_dml.utils.gradients import l2_normalize, with_gradient
from keras_dml.utils.types import Count, Positive, Tensor


class TripletTerms(NamedTuple):
    """The terms of a positive with all references, (B, R) each."""

    value: Tensor
    pull: Tensor
    """Derivative by the distance of the positive."""
    push: Tensor
    """Derivative by the distance of the negative."""
    costs: Tensor
    """Which terms are not zero, for reductions that count those."""


def reduce_triplets(
    loss: PairLoss,
    pairs: Pairs,
    terms_of: Callable[[Tensor, Tensor], TripletTerms],
) -> Tensor:
    """The reduction of the terms of all triplets that are mined, (B,).

    Args:
        loss: The loss, which mines and reduces.
        pairs: The pairs of a batch.
        terms_of: From the distance of a positive, (B, 1), and those of all
            references, (B, R), to the terms; those of references
            that are no negatives do not matter.
    """
    fixed = ops.stop_gradient(pairs.distances)
    positive_weights, negative_weights = pairs.weights

    def add(state: State, positive: Tensor, negatives: Tensor) -> State:
        total, count, nonzero, slopes = state
        negatives = ops.cast(negatives, "bool")
        terms = terms_of(value_at(fixed, positive), fixed)
        value, pull, push = (
            ops.where(negatives, x, 0.0)
            for x in (terms.value, terms.pull, terms.push)
        )
        if positive_weights is not None:
            weights = value_at(positive_weights, positive) * negative_weights
            weights = ops.where(negatives, weights, 0.0)
            value, pull, push = (weights * x for x in (value, pull, push))
        to_positive = ops.sum(pull, axis=1, keepdims=True)
        return (
            total + ops.sum(value, axis=1),
            count + _count(negatives),
            nonzero + _count(ops.logical_and(negatives, terms.costs)),
            ops.where(positive, to_positive, slopes) + push,
        )

    zeros = ops.zeros_like(fixed[:, 0])
    initial = (zeros, zeros, zeros, ops.zeros_like(fixed))
    *sums, slopes = loss.for_each_positive(pairs, add, initial)
    terms = Terms(*sums)
    total = with_gradient(terms.total, slopes, pairs.distances)
    return reduce_terms(terms._replace(total=total), loss.reduction)


def _count(mask: Tensor) -> Tensor:
    return ops.sum(ops.cast(mask, "float32"), axis=1)


@LOSSES.register("triplet", examples={"soft_margin": True})
class TripletLoss(PairLoss):
    r"""Triplet loss: positives closer than negatives by a margin.

    For each triplet of an anchor $a$, a positive $p$ and a negative $n$ chosen
    by mining,

    $$
    \ell_{apn} = \left[ d(a, p) - d(a, n) + m \right]_+ ,
    $$

    or, with `soft_margin`, log(1 + exp(·)) instead of the hinge. Common
    variants:

    - FaceNet: the defaults, squared distance and semi-hard negatives.
    - batch-hard (Hermans et al.): `distance="euclidean"`, `mining="hard"`,
      and with `soft_margin=True`, `margin=0`.
    - batch-all: `mining="all"`, `reduction="mean_nonzero"`.

    Terms are triplets; each is multiplied by the product of the
    `pair_weights` of (a, p) and (a, n).

    This computes, in O(B·R) memory, the mean of

    ```python
    for a, p, n in triplets:
        terms.append(max(d[a, p] - d[a, n] + margin, 0))
    ```

    When to use it:
        Known triplets; comparison with older work. `mining="hard"`
        wants pretrained weights and clean labels.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        margin: m, in units of `distance`.
        soft_margin: Whether log(1 + exp(·)) replaces the hinge.
        distance, mining, reduction, **kwargs: As for `PairLoss`.

    Requirements:
        At least two classes, and at least two examples of one class.

    Time is O(B·P·R) and memory O(B·R), with P the largest number of positives
    of any anchor: no list of triplets is created.

    Also known as:
        - pytorch-metric-learning: `TripletMarginLoss(margin)` is
          `TripletLoss(margin, distance="euclidean", mining="all",
          reduction="mean_nonzero")`; with `BatchHardMiner()` it has
          `mining="hard"`.
        - TF Similarity: `TripletLoss(margin)` is `TripletLoss(margin,
          distance="cosine", mining=Selection("hard", "semihard"),
          reduction="sum_over_pairs")`; its margin of None is
          `soft_margin=True`.
        - TensorFlow Addons: `TripletSemiHardLoss(margin)` is
          `TripletLoss(margin, distance="euclidean", normalize=False)`;
          `TripletHardLoss(margin)` has also `mining="hard"` and
          `reduction="sum_over_pairs"`.
        - sentence-transformers: `BatchAllTripletLoss`, `BatchHardTripletLoss`,
          `BatchHardSoftMarginTripletLoss`, `BatchSemiHardTripletLoss`,
          `TripletLoss`.
        - Elsewhere: FaceNet loss, batch-hard loss.

    Example:
        >>> x = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> # Anchor 0: [0.8 − 2 + 0.2]₊ = 0; anchor 1: 0.8 − 0.4 + 0.2 = 0.6.
        >>> round(float(TripletLoss()([0, 0, 1], x)), 4)
        0.3

    Reference:
        Schroff et al., "FaceNet: A Unified Embedding for Face Recognition and
        Clustering", CVPR 2015, Eq. 1, https://arxiv.org/abs/1503.03832; Hermans
        et al., "In Defense of the Triplet Loss for Person Re-Identification",
        2017.
    """

    needs_triplets = True

    def __init__(
        self,
        margin: float = 0.2,
        soft_margin: bool = False,
        distance: DistanceLike = "squared",
        mining: Any = "semihard",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.margin = margin
        self.soft_margin = soft_margin

    def values(self, pairs: Pairs) -> Tensor:
        rounding = pairs.rounding

        def terms_of(positive: Tensor, distances: Tensor) -> TripletTerms:
            gap = (positive + self.margin) - distances
            if self.soft_margin:
                slope = ops.sigmoid(gap)
                # Every term is above 0, even where rounding makes it 0.
                costs = ops.ones_like(gap, "bool")
                return TripletTerms(ops.softplus(gap), slope, -slope, costs)
            value = hinge(gap, rounding)
            costs = value > 0
            slope = ops.cast(costs, "float32")
            return TripletTerms(value, slope, -slope, costs)

        return reduce_triplets(self, pairs, terms_of)


_EASY_POSITIVE_HARD_NEGATIVE = Selection("easy", "hard")


@LOSSES.register(
    "selectively_contrastive", examples={"weight": 0.7, "cutoff": 0.6}
)
class SelectivelyContrastiveLoss(PairLoss):
    r"""Selectively contrastive triplets: hard negatives are only pushed away.

    For each triplet chosen by mining,

    $$
    \ell_{apn} = \begin{cases}
    \lambda \, s(a, n) & \text{if } s(a, n) > s(a, p) \\
    \log\left( 1 + e^{(s(a, n) - s(a, p)) / \tau} \right) & \text{otherwise.}
    \end{cases}
    $$

    With a triplet loss, very hard triplets pull all three examples together.
    Here, they only push the negative away, so the hardest negatives can be
    mined.

    Terms are triplets; each is multiplied by the product of the `pair_weights`
    of (a, p) and (a, n). Terms can be negative.

    This computes, in O(B·R) memory, the mean of

    ```python
    for a, p, n in triplets:
        soft = np.log1p(np.exp((s[a, n] - s[a, p]) / temperature))
        terms.append(weight * s[a, n] if s[a, n] > s[a, p] else soft)
    ```

    When to use it:
        Triplets with the hardest negatives, if other losses collapse.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        temperature: τ.
        weight: λ.
        cutoff: In units of `distance`: negatives closer than this also count as
            hard. None: only negatives closer than the positive do.
        distance: As for `PairLoss`; cosine similarity in the paper. For a
            distance d, s is −d.
        mining: As for `PairLoss`; by default, as in the released code, the
            closest positive and the closest negative of each anchor.
        reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `temperature` or `weight` is not positive.

    Deviations:
        - The released code has `cutoff=0.8`, and skips positives with a
          similarity above 0.9999 as duplicates.

    Also known as:
        - pytorch-metric-learning: `SelectivelyContrastiveTripletLoss`, from its
          version 3 on; not compared.

    Example:
        `SelectivelyContrastiveLoss(temperature=0.1)(labels, embeddings)`

    Reference:
        Xuan et al., "Hard Negative Examples are Hard, but Useful", ECCV 2020,
        https://arxiv.org/abs/2007.12749.
    """

    needs_triplets = True

    def __init__(
        self,
        temperature: Positive = 0.1,
        weight: Positive = 1.0,
        cutoff: float | None = None,
        distance: DistanceLike = "cosine",
        mining: Any = _EASY_POSITIVE_HARD_NEGATIVE,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.temperature = temperature
        self.weight = weight
        self.cutoff = cutoff

    def values(self, pairs: Pairs) -> Tensor:
        def terms_of(positive: Tensor, distances: Tensor) -> TripletTerms:
            gap = (positive - distances) / self.temperature
            is_hard = gap > 0
            if self.cutoff is not None:
                is_near = distances < pairs.metric.orient(self.cutoff)
                is_hard = ops.logical_or(is_hard, is_near)
            value = ops.where(
                is_hard, -self.weight * distances, ops.softplus(gap)
            )
            pull = ops.where(is_hard, 0.0, ops.sigmoid(gap) / self.temperature)
            push = ops.where(is_hard, -self.weight, -pull)
            return TripletTerms(value, pull, push, value > 0)

        return reduce_triplets(self, pairs, terms_of)


_CLOSEST_NEGATIVES = Selection("all", "hard")


@LOSSES.register(
    "dynamic_soft_margin",
    examples={"num_bins": 70, "momentum": 0.3, "limit": 1.7},
)
class DynamicSoftMarginLoss(PairLoss):
    r"""Dynamic soft margin: triplets weighted by the share of easier ones.

    For each triplet chosen by mining,

    $$
    \ell_{apn} = F\left( d(a, p) - d(a, n) \right)
    \left( d(a, p) - d(a, n) \right) ,
    $$

    where $F$ is the distribution function of this difference among recent
    triplets. This is a triplet loss without a margin to choose. No gradient
    passes through $F$.

    The distribution is a histogram, a moving average over batches, including
    the current one. It belongs to the objective that builds the loss, is saved
    with the model, and is not changed by evaluation.

    Terms are triplets; each is multiplied by the product of the `pair_weights`
    of (a, p) and (a, n), which do not affect the histogram.

    This computes, in O(B·R) memory and but for the bins of the histogram,

    ```python
    gaps = np.array([d[a, p] - d[a, n] for a, p, n in triplets])
    shares = np.array([np.mean(recent_gaps <= gap) for gap in gaps])
    loss = np.mean(shares * gaps)
    ```

    When to use it:
        Triplets, without a margin to tune.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        num_bins: Number of bins of the histogram.
        momentum: Weight of each new batch in the histogram; the first batch has
            the weight 1.
        limit: Largest absolute difference of distances, in units of `distance`;
            larger differences are clipped. For Euclidean distances of
            unit-length embeddings it is 2.
        distance: As for `PairLoss`; Euclidean in the paper.
        mining: As for `PairLoss`; by default, every positive with the anchor's
            closest negative. Random mining draws again for the histogram.
        reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `num_bins`, `momentum` or `limit` is not positive, or
            `momentum` is above 1.
        RuntimeError: When called before `build`.

    Deviations:
        - The paper's batches consist of pairs, and the negative is the one
          closest to either example of a pair. Here, both examples are anchors,
          and the negative is the one closest to the anchor.
        - pytorch-metric-learning uses all triplets, like `mining="all"`, passes
          a gradient through the histogram, and applies `momentum` per triplet
          rather than per batch.

    Also known as:
        - pytorch-metric-learning: `DynamicSoftMarginLoss(num_bins=b)` with
          `mining="all"` and `num_bins=b`; another meaning of `momentum`, see
          the deviations.

    Example:
        `DynamicSoftMarginLoss(momentum=0.05)`

    Reference:
        Zhang and Rusinkiewicz, "Learning Local Descriptors With a CDF-Based
        Dynamic Soft Margin", ICCV 2019.
    """

    needs_triplets = True
    owns_variables: Any = True
    has_memory: Any = True

    def __init__(
        self,
        num_bins: Count = 512,
        momentum: Annotated[float, Gt(0), Le(1)] = 0.01,
        limit: Positive = 2.0,
        distance: DistanceLike = "euclidean",
        mining: Any = _CLOSEST_NEGATIVES,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.num_bins = num_bins
        self.momentum = momentum
        self.limit = limit
        self.histogram: keras.Variable | None = None

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        check_not_built("DynamicSoftMarginLoss", self.histogram is not None)
        super().build(owner, embedding_dim)
        self.histogram = add_loss_variable(
            owner,
            "histogram",
            shape=(self.num_bins + 1,),
            initializer="zeros",
            trainable=False,
            aggregation="only_first_replica",
        )

    def values(self, pairs: Pairs) -> Tensor:
        shares = ops.cumsum(self._histogram_with(pairs))
        per_unit = self.num_bins / (2 * self.limit)

        def terms_of(positive: Tensor, distances: Tensor) -> TripletTerms:
            gap = positive - distances
            node = ops.cast(ops.floor((gap + self.limit) * per_unit), "int32")
            share = ops.take(shares, ops.clip(node, 0, self.num_bins))
            value = share * gap
            return TripletTerms(value, share, -share, value > 0)

        return reduce_triplets(self, pairs, terms_of)

    def remember(
        self, labels: Tensor, embeddings: Tensor, when: Tensor | None = None
    ) -> None:
        embeddings = ops.cast(embeddings, "float32")
        if self.normalize:
            embeddings = l2_normalize(embeddings)
        if is_multi_hot(labels):
            labels = relations(labels)
        pairs = Batch(labels, embeddings).compare(self.distance)
        # A batch that is not finite would spoil the histogram for ever.
        counts = ops.all(ops.isfinite(embeddings))
        if when is not None:
            counts = ops.logical_and(counts, when)
        past = self._past()
        before = ops.convert_to_tensor(past)
        past.assign(ops.where(counts, self._histogram_with(pairs), before))

    def _histogram_with(self, pairs: Pairs) -> Tensor:
        """(num_bins + 1,): the histogram with the triplets of these pairs."""
        distances = ops.stop_gradient(pairs.distances)
        past = ops.convert_to_tensor(self._past())

        def add(state: State, positive: Tensor, negatives: Tensor) -> State:
            triplets = ops.cast(negatives, "bool")
            counts, _ = soft_histograms(
                value_at(distances, positive) - distances,
                triplets,
                ops.zeros_like(triplets),
                -self.limit,
                self.limit,
                self.num_bins + 1,
            )
            return (state[0] + ops.sum(counts, axis=0),)

        initial = (ops.zeros_like(past),)
        (counts,) = self.for_each_positive(pairs, add, initial)
        size = ops.sum(counts)
        share = ops.where(ops.sum(past) > 0, self.momentum, 1.0)
        present = counts / ops.where(size > 0, size, 1.0)
        mixed = (1.0 - share) * past + share * present
        return ops.where(size > 0, mixed, past)

    def _past(self) -> keras.Variable:
        if self.histogram is None:
            name = "DynamicSoftMarginLoss"
            raise not_built_error(name, f"{name}()")
        return self.histogram
