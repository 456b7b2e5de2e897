"""Angular loss."""

import math
from typing import Any, NamedTuple

from keras import ops

from keras_dml.losses.base import MetricLoss
from keras_dml.losses.pairs import pair_masks
from keras_dml.losses.reductions import Terms, masked_logsumexp, reduce_terms
from keras_dml.serialization import register
from keras_dml.types import Tensor


def angular(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    *,
    angle: float = 45.0,
    reduction: str = "mean",
) -> Tensor:
    """Angular loss of every example, (B,); see `AngularLoss`."""
    positive, negative = pair_masks(
        labels, ref_labels, exclude_self=ref_embeddings is None
    )
    has_negative = ops.any(negative, axis=1, keepdims=True)
    positive = ops.logical_and(positive, has_negative)
    refs = embeddings if ref_embeddings is None else ref_embeddings
    total = _sum_over_positives(positive, negative, angle)(embeddings, refs)
    count = ops.sum(ops.cast(positive, "float32"), axis=1)
    # Every term is above 0, so that both counts are the same.
    return reduce_terms(Terms(total, count, count), reduction)


class _Visit(NamedTuple):
    """The k-th positives p of all anchors x."""

    exists: Tensor  # (B, 1) float, 0 for an anchor that has no p
    index: Tensor  # (B,) which reference p is
    positives: Tensor  # (B, D)
    exponents: Tensor  # (B, R) f(x, p, n) for all n
    loss: Tensor  # (B, 1) log(1 + Σ_n exp f), 0 without a p


def _sum_over_positives(
    positive: Tensor, negative: Tensor, angle: float
) -> Any:
    """(embeddings, refs) → (B,): the terms of each anchor, summed.

    Visits the k-th positive of all anchors at once, so that memory stays
    O(B·R). The gradient walks over them again instead of keeping what the
    first walk computed, which also makes it work where loops of unknown
    length have no gradient (XLA, JAX).
    """
    tan2 = math.tan(math.radians(angle)) ** 2
    rank = ops.cumsum(ops.cast(positive, "int32"), axis=1)
    steps = ops.max(rank)

    def visit(k: Tensor, x: Tensor, refs: Tensor) -> _Visit:
        chosen = ops.logical_and(positive, rank == k)
        exists = ops.any(chosen, axis=1, keepdims=True)
        index = ops.argmax(ops.cast(chosen, "int32"), axis=1)
        p = ops.take(refs, index, axis=0)
        to_negatives = ops.matmul(x + p, ops.transpose(refs))
        to_positive = ops.sum(x * p, axis=1, keepdims=True)
        exponents = 4.0 * tan2 * to_negatives - 2.0 * (1.0 + tan2) * to_positive
        loss = masked_logsumexp(exponents, negative, add_one=True)
        loss = ops.where(exists, loss, 0.0)
        exists = ops.cast(exists, "float32")
        return _Visit(exists, index, p, exponents, loss)

    def slopes(
        k: Tensor, x: Tensor, refs: Tensor, upstream: Tensor
    ) -> tuple[Tensor, Tensor]:
        exists, index, p, exponents, loss = visit(k, x, refs)
        share = ops.exp(ops.where(negative, exponents - loss, 0.0))
        share = ops.where(negative, share, 0.0) * exists * upstream[:, None]
        to_sum = 4.0 * tan2 * ops.matmul(share, refs)  # gradient by x + p
        pull = -2.0 * (1.0 + tan2) * ops.sum(share, axis=1, keepdims=True)
        by_refs = 4.0 * tan2 * ops.matmul(ops.transpose(share), x + p)
        by_p = to_sum + pull * x
        by_refs = by_refs + ops.segment_sum(
            by_p, index, num_segments=ops.shape(refs)[0]
        )
        return to_sum + pull * p, by_refs

    @ops.custom_gradient
    def total(x: Tensor, refs: Tensor) -> Any:
        def add(k: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
            return k + 1, total + visit(k, x, refs).loss[:, 0]

        def gradient(*args: Tensor, upstream: Tensor = None) -> Any:
            upstream = args[0] if upstream is None else upstream

            def add_slopes(k: Tensor, *sums: Tensor) -> tuple[Tensor, ...]:
                new = slopes(k, x, refs, upstream)
                return (k + 1, sums[0] + new[0], sums[1] + new[1])

            return _loop(
                steps, add_slopes, ops.zeros_like(x), ops.zeros_like(refs)
            )

        (value,) = _loop(steps, add, ops.zeros_like(x[:, 0]))
        return value, gradient

    return total


def _loop(steps: Tensor, body: Any, *initial: Tensor) -> tuple[Tensor, ...]:
    """Runs `body` for k = 1, …, `steps`."""
    _, *state = ops.while_loop(
        lambda k, *_: k <= steps, body, (ops.ones_like(steps), *initial)
    )
    return tuple(state)


@register
class AngularLoss(MetricLoss):
    """Angular loss: bounds the angle at the negative of each triplet.

    log(1 + Σ_n exp(4 tan²α (x_a + x_p)ᵀ x_n − 2 (1 + tan²α) x_aᵀ x_p)) for
    each positive pair, n over the negatives of the anchor. Terms are
    positive pairs.

    Args:
        angle: α, in degrees, between 0 and 90.
        reduction: As for `MetricLoss`.
        **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `angle` is out of range.

    Reference:
        Wang et al., "Deep Metric Learning with Angular Loss", ICCV 2017,
        Eq. 7; α = 45° is the paper's choice for Stanford Online Products.
    """

    function = staticmethod(angular)

    def __init__(
        self, angle: float = 45.0, reduction: str = "mean", **kwargs: Any
    ) -> None:
        super().__init__(reduction=reduction, **kwargs)
        if not 0 < angle < 90:
            raise ValueError(
                "`angle` of AngularLoss is in degrees, between 0 and 90. "
                f"Received: angle={angle}."
            )
        self.angle = angle
