"""Histogram loss."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES, MetricLoss
from keras_dml.losses.pairs import PairWeights, compare
from keras_dml.losses.reductions import scale_to_mean
from keras_dml.losses.soft_histogram import soft_histograms
from keras_dml.utils.arguments import check_choice, check_count
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


def histogram(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    pair_weights: PairWeights | None = None,
    *,
    num_bins: int = 100,
) -> Tensor:
    """Histogram loss, an anchor's share of it, (B,); see `HistogramLoss`."""
    pairs = compare(
        labels, embeddings, ref_labels, ref_embeddings, "cosine", pair_weights
    )
    positive, negative = soft_histograms(
        -pairs.distances,
        *pairs.counts(),
        low=-1.0,
        high=1.0,
        nodes=num_bins + 1,
    )
    count = ops.sum(positive)
    density = ops.sum(positive, axis=0) / ops.where(count > 0, count, 1.0)
    reversals = ops.sum(negative * ops.cumsum(density), axis=1)
    return scale_to_mean(reversals, ops.sum(negative))


@LOSSES.register(
    "histogram", "how often a negative pair looks like a positive one"
)
@register
class HistogramLoss(MetricLoss):
    """Histogram loss: how often a negative pair looks like a positive one.

    Σ_r h₋(r) Σ_{q ≤ r} h₊(q), with h₊ and h₋ the soft histograms of the
    cosine similarities of all positive and all negative pairs: the
    probability that a random negative pair is more similar than a random
    positive one. It belongs to the batch; an anchor's value is the share
    of its negative pairs, and their mean is the loss. `pair_weights`
    multiply each pair's count in its histogram.

    Args:
        num_bins: Number of intervals of the histogram over [−1, 1].
        reduction: "mean", the only one.
        **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `num_bins` is not a positive integer, or for another
            reduction.

    Reference:
        Ustinova and Lempitsky, "Learning Deep Embeddings with Histogram Loss",
        NIPS 2016, Eq. 1 to 5, https://arxiv.org/abs/1611.00822.
    """

    function = staticmethod(histogram)

    def __init__(
        self, num_bins: int = 100, reduction: str = "mean", **kwargs: Any
    ) -> None:
        super().__init__(reduction=reduction, **kwargs)
        check_choice("HistogramLoss", "reduction", reduction, ("mean",))
        check_count("HistogramLoss", "num_bins", num_bins)
        self.num_bins = num_bins
