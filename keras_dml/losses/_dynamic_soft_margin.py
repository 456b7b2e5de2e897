"""The dynamic soft margin loss."""

from typing import Annotated, Any

import keras
from annotated_types import Gt, Le
from keras import ops

from keras_dml.losses._histogram import soft_histograms
from keras_dml.losses._triplet import TripletTerms, reduced_triplets
from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.labels import is_multi_hot, relations
from keras_dml.losses.mining.selection import Selection
from keras_dml.losses.mining.visits import State, value_at
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Batch, Pairs
from keras_dml.losses.variables import (
    add_loss_variable,
    check_not_built,
    not_built_error,
)
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.types import Count, Positive, Tensor

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

    @property
    def owns_variables(self) -> bool:
        return True

    @property
    def has_memory(self) -> bool:
        return True

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
        shares = ops.cumsum(self._with(pairs))
        per_unit = self.num_bins / (2 * self.limit)

        def terms_of(positive: Tensor, distances: Tensor) -> TripletTerms:
            gap = positive - distances
            node = ops.cast(ops.floor((gap + self.limit) * per_unit), "int32")
            share = ops.take(shares, ops.clip(node, 0, self.num_bins))
            value = share * gap
            return TripletTerms(value, share, -share, value > 0)

        return reduced_triplets(self, pairs, terms_of)

    def remember(
        self, labels: Tensor, embeddings: Tensor, when: Tensor | None = None
    ) -> None:
        embeddings = ops.cast(embeddings, "float32")
        if self.normalize:
            embeddings = l2_normalize(embeddings)
        if is_multi_hot(labels):
            labels = relations(labels)
        pairs = Batch(labels, embeddings).compare(self.distance)
        # One batch that is not finite must not be remembered for ever.
        counts = ops.all(ops.isfinite(embeddings))
        if when is not None:
            counts = ops.logical_and(counts, when)
        past = self._past()
        before = ops.convert_to_tensor(past)
        past.assign(ops.where(counts, self._with(pairs), before))

    def _with(self, pairs: Pairs) -> Tensor:
        """(num_bins + 1,): the histogram, once it has these pairs' triplets."""
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
