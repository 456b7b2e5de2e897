"""Margin loss."""

from collections.abc import Sequence
from typing import Any, Literal

import keras
from keras import ops

from keras_dml.losses.base import LOSSES, MetricLoss
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.mining.miner import State, value_at
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Batch, Pairs, hinge
from keras_dml.losses.reductions import Terms, reduce_terms, sum_terms
from keras_dml.losses.variables import (
    add_loss_variable,
    check_class_ids,
    check_not_built,
    nan_outside,
    not_built_error,
    take_rows,
)
from keras_dml.utils.types import Count, Tensor


@LOSSES.register(
    "margin",
    examples={
        "beta": 1.1,
        "nu": 0.1,
        "learn_beta": True,
        "normalize_by": "triplets",
        "reduction": "mean",
    },
)
class MarginLoss(PairLoss):
    r"""Margin loss: pairs on either side of a boundary that can be learned.

    For a positive and a negative pair at distance $d$,

    $$
    \ell_+ = \left[ \alpha + d - \beta \right]_+ , \qquad
    \ell_- = \left[ \alpha + \beta - d \right]_+ ,
    $$

    which is a hinge of width α on either side of the boundary β.

    Mining yields triplets (a, p, n), by default with one randomly drawn
    negative for each positive; each triplet counts as the pairs (a, p) and
    (a, n). Terms are pairs, or triplets with `normalize_by="triplets"`. The
    default reduction, "mean_nonzero", divides by the number of active pairs.
    `pair_weights` multiply the hinges of pairs, also within triplets.

    When to use it:
        Class-balanced batches of varied images: its mining shows
        negatives at all distances, and a learned boundary saves tuning
        a margin.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`. With `num_classes`,
        only class ids, integers in [0, num_classes).

    Args:
        alpha: Half-width α of the hinge, in units of `distance`.
        beta: Boundary β, or its initial value if it is learned.
        learn_beta: Whether β is a trainable weight. If so, the loss must be
            built by a layer, as in a `keras_dml.MetricModel`.
        num_classes: None for a single β; a number for one β per class, where
            the anchor's class counts. Requires `learn_beta`, and class ids in
            [0, num_classes): any other id raises an error, or gives the example
            a loss of NaN inside a compiled graph.
        nu: Weight ν of the penalty ν·β on a learned β (Eq. 7).
        normalize_by: Whether terms are "pairs" or "triplets"; a triplet is
            active if either of its pairs is.
        distance: A name in `keras_dml.losses.distances.DISTANCES`.
        mining: As for `PairLoss`. With "all", and normalization by pairs, each
            pair counts once.
        reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If an argument is out of range.
        RuntimeError: When called before `build`, if `learn_beta`.

    Requirements:
        At least two examples per class; random draws become useful with several
        images per class.

    Deviations:
        - The paper's β per image is not implemented.

    Also known as:
        - pytorch-metric-learning: `MarginLoss()` with `BatchHardMiner()` is
          `MarginLoss(mining="hard")`; its `margin` is `alpha`. Without a miner
          it counts a pair once for each triplet that the pair is in, and
          `mining="all"` here once.

    Example:
        >>> x = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> # Only the closest negative pair costs something: 0.2 + 1.2 − √0.4.
        >>> round(float(MarginLoss(mining="all")([0, 0, 1], x)), 4)
        0.7675

    Reference:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017, Eq.
        6 and 7, https://arxiv.org/abs/1706.07567.
    """

    def __init__(
        self,
        alpha: float = 0.2,
        beta: float = 1.2,
        learn_beta: bool = False,
        num_classes: Count | None = None,
        nu: float = 0.0,
        normalize_by: Literal["pairs", "triplets"] = "pairs",
        distance: DistanceLike = "euclidean",
        mining: Any = "distance_weighted",
        reduction: str = "mean_nonzero",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        if num_classes is not None and not learn_beta:
            raise ValueError(
                "`num_classes` of MarginLoss requires `learn_beta`, because it "
                "gives every class a learned boundary. Received: "
                f"num_classes={num_classes}, learn_beta=False. Use "
                "learn_beta=True."
            )
        self.alpha = alpha
        self.beta = beta
        self.learn_beta = learn_beta
        self.num_classes = num_classes
        self.nu = nu
        self.normalize_by = normalize_by
        self.beta_weight: keras.Variable | None = None

    @property
    def owns_variables(self) -> bool:
        return self.learn_beta

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        super().build(owner, embedding_dim)
        if self.learn_beta:
            check_not_built("MarginLoss", self.beta_weight is not None)
            self.beta_weight = add_loss_variable(
                owner,
                "beta",
                shape=(self.num_classes or 1,),
                initializer=keras.initializers.Constant(self.beta),
            )

    def start_from(
        self,
        parts: Sequence[MetricLoss],
        class_means: Tensor | None = None,
    ) -> None:
        """β is the mean of those of the slices."""
        if self.beta_weight is not None:
            betas = [ops.convert_to_tensor(part.beta_weight) for part in parts]
            self.beta_weight.assign(sum(betas) / len(betas))

    def call(self, batch: Batch) -> Tensor:
        if self.num_classes is None:
            return super().call(batch)
        betas = self._beta()
        check_class_ids("MarginLoss", batch.labels, self.num_classes)
        beta = take_rows(betas, batch.labels)[:, None]
        values = self.values(batch.compare(self.distance), beta)
        return nan_outside(values, batch.labels, self.num_classes)

    def values(self, pairs: Pairs, beta: Tensor | None = None) -> Tensor:
        """As for `PairLoss`, with boundaries that broadcast to (B, 1)."""
        beta = self._beta() if beta is None else beta
        boundary = pairs.metric.orient(beta)
        rounding = pairs.rounding
        excess = hinge(self.alpha + pairs.distances - boundary, rounding)
        lack = hinge(self.alpha + boundary - pairs.distances, rounding)
        by_triplets = self.normalize_by == "triplets"
        if by_triplets:
            *counts, triplets, active = self._count(pairs, excess, lack)
        else:
            counts = list(self.mined(pairs))
        positive = sum_terms(excess, counts[0], pairs.weights[0])
        negative = sum_terms(lack, counts[1], pairs.weights[1])
        terms = Terms(*map(ops.add, positive, negative))
        if by_triplets:
            terms = Terms(terms.total, triplets, active)
        values = reduce_terms(terms, self.reduction)
        if self.nu == 0:
            return values
        anchors = ops.cast(terms.count > 0, "float32")
        return values + self.nu * anchors * ops.reshape(beta, (-1,))

    def _beta(self) -> Tensor:
        if not self.learn_beta:
            return ops.convert_to_tensor(self.beta, dtype="float32")
        if self.beta_weight is None:
            code = "MarginLoss(learn_beta=True)"
            raise not_built_error("MarginLoss", code)
        return ops.convert_to_tensor(self.beta_weight)

    def _count(self, pairs: Pairs, excess: Tensor, lack: Tensor) -> State:
        """Counts of pairs, and (B,) numbers of triplets and active triplets."""
        positive_active = ops.cast(excess > 0, "float32")
        negative_active = lack > 0

        def add(state: State, visited: Tensor, negatives: Tensor) -> State:
            positive, negative, triplets, active = state
            negatives = ops.cast(negatives, "float32")
            count = ops.sum(negatives, axis=1, keepdims=True)
            either = ops.logical_or(
                negative_active, value_at(positive_active, visited) > 0
            )
            return (
                ops.where(visited, count, positive),
                negative + negatives,
                triplets + count[:, 0],
                active + ops.sum(ops.where(either, negatives, 0.0), axis=1),
            )

        of_pairs = ops.zeros_like(pairs.distances)
        of_anchors = ops.zeros_like(pairs.distances[:, 0])
        initial = (of_pairs, of_pairs, of_anchors, of_anchors)
        return self.for_each_positive(pairs, add, initial)
