"""Angular loss."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Gt, Lt
from keras import ops

from keras_dml.losses.base import LOSSES, MetricLoss
from keras_dml.losses.distances import inner_product
from keras_dml.losses.mining.miner import (
    State,
    column_index,
    for_each_true,
    gather_column,
)
from keras_dml.losses.pairs import Batch
from keras_dml.losses.reductions import (
    Terms,
    masked_logsumexp,
    reduce_terms,
    weighted_exponents,
)
from keras_dml.utils.gradients import custom_gradient
from keras_dml.utils.types import Tensor


@LOSSES.register("angular", examples={"angle": 40.0})
class AngularLoss(MetricLoss):
    r"""Angular loss: bounds the angle at the negative of each triplet.

    For each positive pair, with the negatives $N_a$ of the anchor,

    $$
    \ell_{ap} = \log\left( 1 + \sum_{n \in N_a} \exp\left(
    4 \tan^2 \alpha \, (x_a + x_p)^\top x_n -
    2 (1 + \tan^2 \alpha) \, x_a^\top x_p \right) \right) .
    $$

    Terms are positive pairs. `pair_weights` multiply the terms of positive
    pairs and the exponentials of negative pairs.

    This computes, in O(B·R) memory, the mean of

    ```python
    tan2 = np.tan(np.radians(angle)) ** 2
    for a, p in np.argwhere(positive & negative.any(axis=1, keepdims=True)):
        push = 4 * tan2 * x[negative[a]] @ (x[a] + x[p])
        pull = 2 * (1 + tan2) * x[a] @ x[p]
        terms.append(np.log1p(np.exp(push - pull).sum()))
    ```

    When to use it:
        In place of a triplet loss, if a margin in distances is hard to
        choose: an angle does not depend on the scale of embeddings.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        angle: α, in degrees, between 0 and 90.
        reduction, **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `angle` is out of range.

    Also known as:
        - pytorch-metric-learning: `AngularLoss(alpha)` is `AngularLoss(alpha)`;
          its default is 40°. The gradients agree on the sphere only, because
          theirs does not normalize negatives.

    Example:
        >>> x = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> # Both pairs cost log(1 + exp(4 · (0 + 0.8) − 4 · 0.6)).
        >>> round(float(AngularLoss()([0, 0, 1], x)), 4)
        1.1711

    Reference:
        Wang et al., "Deep Metric Learning with Angular Loss", ICCV 2017, Eq. 7,
        https://arxiv.org/abs/1708.01682; α = 45° is the paper's choice for
        Stanford Online Products.
    """

    weights_pairs = True
    needs_triplets = True

    def __init__(
        self,
        angle: Annotated[float, Gt(0), Lt(90)] = 45.0,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction, **kwargs)
        self.angle = angle

    def call(self, batch: Batch) -> Tensor:
        pairs = batch.compare("dot")
        has_negative = ops.any(pairs.negative, axis=1, keepdims=True)
        positive = ops.logical_and(pairs.positive, has_negative)
        count = ops.sum(ops.cast(positive, "float32"), axis=1)
        within_batch = batch.ref_embeddings is None
        terms = _Terms(
            positive, pairs.negative, within_batch, self.angle, *pairs.weights
        )
        total = terms.total(-pairs.distances, batch.references)
        # Every term is above 0, so that both counts are the same.
        return reduce_terms(Terms(total, count, count), self.reduction)


@dataclass
class _Terms:
    """Sums the terms over all positives, with memory O(B·R).

    Visits the k-th positive of all anchors at once. The gradient is a loop
    of its own, which makes it work where loops of unknown length have no
    gradient (XLA, JAX).

    Attributes:
        positive: (B, R) boolean.
        negative: (B, R) boolean.
        within_batch: Whether the references are the batch itself: then the rows
            of its similarities are those of the positives too.
        angle: α, in degrees.
        positive_weights: (B, R) weights of positive pairs, or None.
        negative_weights: (B, R) weights of negative pairs, or None.
    """

    positive: Tensor
    negative: Tensor
    within_batch: bool
    angle: float
    positive_weights: Tensor | None
    negative_weights: Tensor | None

    def __post_init__(self) -> None:
        tan2 = math.tan(math.radians(self.angle)) ** 2
        self.push, self.pull = 4.0 * tan2, 2.0 * (1.0 + tan2)

    def total(self, similarity: Tensor, refs: Tensor) -> Tensor:
        """(B,): the terms of each anchor, summed; similarities are (B, R)."""

        @custom_gradient
        def total(similarity: Tensor, refs: Tensor) -> Any:
            losses = self._losses(similarity, refs)

            def gradient(upstream: Tensor) -> Any:
                return self._slopes(similarity, refs, losses, upstream)

            terms = losses
            if self.positive_weights is not None:
                terms = ops.where(self.positive, self.positive_weights, 0.0)
                terms *= losses
            return ops.sum(terms, axis=1), gradient

        return total(similarity, refs)

    def _losses(self, similarity: Tensor, refs: Tensor) -> Tensor:
        """(B, R): log(1 + Σ_n exp f(a, p, n)) of each positive p, else 0."""
        near = self._exponents(similarity)

        def add(
            k: Any, score: Tensor, visited: Tensor, losses: Tensor
        ) -> State:
            column = column_index(score, visited)
            rest = self._positive_exponents(column, similarity, refs)
            exponents = near + rest
            loss = masked_logsumexp(exponents, self.negative, add_one=True)
            return (ops.where(visited, loss, losses),)

        initial = (ops.zeros_like(similarity),)
        return for_each_true(self.positive, add, initial)[0]

    def _slopes(
        self, similarity: Tensor, refs: Tensor, losses: Tensor, upstream: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradient by the similarities and by the references."""
        near = self._exponents(similarity)

        def add(k: Any, score: Tensor, visited: Tensor, *sums: Tensor) -> State:
            by_similarity, by_refs = sums
            column = column_index(score, visited)
            exponents = self._positive_exponents(column, similarity, refs)
            offset = exponents - gather_column(losses, column)
            weight = ops.where(score > 0, upstream[:, None], 0.0)
            if self.positive_weights is not None:
                factor = gather_column(self.positive_weights, column)
                weight *= ops.where(score > 0, factor, 0.0)
            share = ops.exp(near + offset) * weight
            pull = ops.sum(share, axis=1, keepdims=True) * -self.pull
            share = self.push * share
            by_similarity += ops.where(visited, pull, share)
            count = ops.shape(refs)[0]
            if self.within_batch:
                by_similarity += ops.segment_sum(share, column, count)
            else:
                by_p = ops.matmul(share, refs)
                by_refs += ops.segment_sum(by_p, column, count) + ops.matmul(
                    ops.transpose(share), ops.take(refs, column, axis=0)
                )
            return by_similarity, by_refs

        initial = ops.zeros_like(similarity), ops.zeros_like(refs)
        by_similarity, by_refs = for_each_true(self.positive, add, initial)
        return by_similarity, by_refs

    def _exponents(self, similarity: Tensor) -> Tensor:
        """(B, R) part of f of anchor and negative alone; −1e30 elsewhere."""
        exponents, exists = self.push * similarity, self.negative
        if self.negative_weights is not None:
            exponents, exists = weighted_exponents(
                exponents, exists, self.negative_weights
            )
        return ops.where(exists, exponents, -1e30)

    def _positive_exponents(
        self, column: Tensor, similarity: Tensor, refs: Tensor
    ) -> Tensor:
        """(B, R) rest of f, for the positives in those columns."""
        if self.within_batch:
            rows = ops.take(similarity, column, axis=0)
        else:
            rows = inner_product(ops.take(refs, column, axis=0), refs)
        return self.push * rows - self.pull * gather_column(similarity, column)
