"""FastAP loss."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES, MetricLoss
from keras_dml.losses.pairs import PairWeights, compare
from keras_dml.losses.reductions import reduce_terms, sum_terms
from keras_dml.losses.soft_histogram import soft_histograms
from keras_dml.utils.arguments import check_count
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


def fast_ap(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    pair_weights: PairWeights | None = None,
    *,
    num_bins: int = 10,
    reduction: str = "mean",
) -> Tensor:
    """FastAP loss of every example, (B,); see `FastAPLoss`."""
    pairs = compare(
        labels, embeddings, ref_labels, ref_embeddings, "squared", pair_weights
    )
    counts = pairs.counts()
    positive, negative = soft_histograms(
        pairs.distances, *counts, low=0.0, high=4.0, nodes=num_bins + 1
    )
    positive_up_to = ops.cumsum(positive, axis=1)
    all_up_to = positive_up_to + ops.cumsum(negative, axis=1)
    count = ops.sum(ops.cast(counts[0], "float32"), axis=1)
    precision = positive_up_to / ops.where(all_up_to > 0, all_up_to, 1.0)
    average_precision = ops.sum(positive * precision, axis=1) / ops.where(
        count > 0, count, 1.0
    )
    has_both = ops.logical_and(
        *(ops.any(ops.cast(count, "bool"), axis=1) for count in counts)
    )
    return reduce_terms(sum_terms(1.0 - average_precision, has_both), reduction)


@LOSSES.register(
    "fast_ap", "one minus the average precision of soft distance histograms"
)
@register
class FastAPLoss(MetricLoss):
    """FastAP: one minus the average precision of soft distance histograms.

    Squared distances of unit vectors lie in [0, 4]; histograms over that
    range give precision and recall with a gradient. Terms are the anchors
    that have positives and negatives; `pair_weights` multiply each pair's
    counts in the histograms.

    Args:
        num_bins: Number of intervals of the histogram, L.
        reduction: As for `MetricLoss`.
        **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `num_bins` is not a positive integer.

    Reference:
        Cakir et al., "Deep Metric Learning to Rank", CVPR 2019, Eq. 8.
    """

    function = staticmethod(fast_ap)

    def __init__(
        self, num_bins: int = 10, reduction: str = "mean", **kwargs: Any
    ) -> None:
        super().__init__(reduction=reduction, **kwargs)
        check_count("FastAPLoss", "num_bins", num_bins)
        self.num_bins = num_bins
