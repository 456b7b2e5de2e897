"""Losses on differentiable histograms: histogram loss and FastAP."""

from typing import Any, Literal

import keras
from keras import ops

from keras_dml.losses.base import LOSSES, MetricLoss
from keras_dml.losses.pairs import Batch, PairWeights, in_both
from keras_dml.losses.reductions import scale_to_mean
from keras_dml.utils.gradients import custom_gradient
from keras_dml.utils.types import Count, Tensor


class _HistogramLoss(MetricLoss):
    """Base: histograms of distances, in their own units within `bounds`."""

    weights_pairs = True
    distance: str
    bounds: tuple[float, float]

    def __init__(self, num_bins: Count, reduction: str, **kwargs: Any) -> None:
        super().__init__(reduction, **kwargs)
        self.num_bins = num_bins

    def call(self, batch: Batch) -> Tensor:
        pairs = batch.compare(self.distance)
        counts = pairs.counts()
        values = pairs.metric.orient(pairs.distances)
        nodes = self.num_bins + 1
        histograms = soft_histograms(values, *counts, *self.bounds, nodes)
        return self.values(counts, *histograms)

    def values(
        self, counts: PairWeights, positive: Tensor, negative: Tensor
    ) -> Tensor:
        """(B,) values of (B, R) `counts` and two (B, nodes) histograms."""
        raise NotImplementedError


@LOSSES.register("histogram", examples={"num_bins": 20, "reduction": "mean"})
class HistogramLoss(_HistogramLoss):
    r"""Histogram loss: how often a negative pair is closer than a positive one.

    With the soft histograms $h^+$ and $h^-$ of the cosine similarities of all
    positive and all negative pairs,

    $$
    \mathcal{L} = \sum_r h^-_r \sum_{q \le r} h^+_q ,
    $$

    which is the probability that a random negative pair is more similar than a
    random positive one. The loss is defined for the whole batch; the value of
    an anchor is the part that its negative pairs contribute, and the mean of
    these values is the loss. `pair_weights` multiply the counts of pairs in the
    histograms.

    This computes, in O(B·R) memory,

    ```python
    nodes = np.linspace(-1, 1, num_bins + 1)
    shares = 1 - abs(s[..., None] - nodes) / (nodes[1] - nodes[0])
    shares = np.maximum(shares, 0)  # (B, B, nodes)
    positives, negatives = (shares[x].mean(0) for x in (positive, negative))
    loss = negatives @ positives.cumsum()
    ```

    When to use it:
        Large batches, whose pairs fill the histograms; there is no
        margin or scale to tune.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        num_bins: Number of bins of the histograms over [−1, 1].
        reduction: Must be "mean".
        **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `num_bins` is not a positive integer, or `reduction` is
            not "mean".

    Also known as:
        - pytorch-metric-learning: `HistogramLoss(n_bins)` is
          `HistogramLoss(n_bins)`.

    Example:
        `HistogramLoss(num_bins=50)(labels, embeddings)`

    Reference:
        Ustinova and Lempitsky, "Learning Deep Embeddings with Histogram Loss",
        NIPS 2016, Eq. 1 to 5, https://arxiv.org/abs/1611.00822.
    """

    distance = "cosine"
    bounds = -1.0, 1.0

    def __init__(
        self,
        num_bins: Count = 100,
        reduction: Literal["mean"] = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_bins, reduction, **kwargs)

    def values(
        self, counts: PairWeights, positive: Tensor, negative: Tensor
    ) -> Tensor:
        count = ops.sum(positive)
        density = ops.sum(positive, axis=0) / ops.where(count > 0, count, 1.0)
        reversals = ops.sum(negative * ops.cumsum(density), axis=1)
        return scale_to_mean(reversals, ops.sum(negative))


@LOSSES.register("fast_ap", examples={"num_bins": 7})
class FastAPLoss(_HistogramLoss):
    r"""FastAP: one minus the average precision from soft distance histograms.

    For an anchor with positives $P$, with the soft counts $h^+_j$ and $h_j$ of
    its positives and of all examples in bin $j$ of their squared distances, and
    the cumulative counts $H^+_j$ and $H_j$ up to this bin,

    $$
    \ell_a = 1 - \frac{1}{|P|} \sum_{j} \frac{h^+_j H^+_j}{H_j} .
    $$

    Squared distances of unit vectors lie in [0, 4]; soft histograms over this
    range make precision and recall differentiable. Terms are the anchors that
    have both positives and negatives; `pair_weights` multiply the counts of
    pairs in the histograms.

    This computes, in O(B·R) memory,

    ```python
    nodes = np.linspace(0, 4, num_bins + 1)
    shares = np.maximum(1 - abs(d[..., None] - nodes) / nodes[1], 0)
    h = (shares * positive[..., None]).sum(1)  # (B, nodes)
    of_all = (shares * (positive | negative)[..., None]).sum(1)
    precision = h.cumsum(1) / np.maximum(of_all.cumsum(1), 1e-30)
    terms = 1 - (h * precision).sum(1) / positive.sum(1)
    ```

    When to use it:
        To optimize average precision; large batches with several images
        per class.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        num_bins: Number of bins of the histograms, L.
        reduction, **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `num_bins` is not a positive integer.

    Also known as:
        - pytorch-metric-learning: `FastAPLoss(num_bins)`.

    Example:
        >>> x = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> # Anchor 0 ranks its positive first; for anchor 1, 1 − 1 / 2.
        >>> round(float(FastAPLoss()([0, 0, 1], x)), 4)
        0.25

    Reference:
        Cakir et al., "Deep Metric Learning to Rank", CVPR 2019, Eq. 8.
    """

    distance = "squared"
    bounds = 0.0, 4.0
    needs_triplets = True

    def __init__(
        self, num_bins: Count = 10, reduction: str = "mean", **kwargs: Any
    ) -> None:
        super().__init__(num_bins, reduction, **kwargs)

    def values(
        self, counts: PairWeights, positive: Tensor, negative: Tensor
    ) -> Tensor:
        positive_up_to = ops.cumsum(positive, axis=1)
        all_up_to = positive_up_to + ops.cumsum(negative, axis=1)
        count = ops.sum(ops.cast(counts[0], "float32"), axis=1)
        precision = positive_up_to / ops.where(all_up_to > 0, all_up_to, 1.0)
        average_precision = ops.sum(positive * precision, axis=1) / ops.where(
            count > 0, count, 1.0
        )
        used = [ops.cast(count, "bool") for count in counts]
        return self.reduce(1.0 - average_precision, in_both(*used))


def soft_histograms(
    values: Tensor,
    positive: Tensor,
    negative: Tensor,
    low: float,
    high: float,
    nodes: int,
) -> tuple[Tensor, Tensor]:
    """Two histograms of each row: of its positive and negative entries.

    A value between two of the equally spaced nodes counts for each in
    proportion to its nearness, so that the counts have a gradient. What lies
    outside [low, high], the values of the first and the last of the nodes,
    counts for the node at that end, without gradient. Entries, (B, R), are
    boolean, or float: how much each counts. Memory is O(B·R) whatever the
    number of nodes.
    """
    per_unit = (nodes - 1) / (high - low)
    used = [ops.cast(count, "bool") for count in (positive, negative)]
    counts_once = keras.backend.standardize_dtype(positive.dtype) == "bool"
    count = None if counts_once else positive + negative

    @custom_gradient
    def counts(values: Tensor) -> Any:
        rows = ops.shape(values)[0]
        position = (values - low) * per_unit
        node = ops.clip(ops.floor(position), 0, nodes - 2)
        # Not clipped to the range of the values first: NaN stays NaN.
        share = ops.clip(position - node, 0.0, 1.0)
        # A row holds the nodes of its positives, then of its negatives.
        kind = ops.where(used[1], nodes, 0)
        segment = ops.cast(node, "int32") + ops.cast(kind, "int32")
        segment = segment + 2 * nodes * ops.arange(rows, dtype="int32")[:, None]
        segment = ops.reshape(segment, (-1,))
        either = ops.logical_or(*used)

        def add_up(weights: Tensor) -> Tensor:
            if count is not None:
                weights = count * weights
            weights = ops.reshape(ops.where(either, weights, 0.0), (-1,))
            total = ops.segment_sum(
                weights, segment, num_segments=2 * nodes * rows
            )
            return ops.reshape(total, (-1, nodes))

        above = add_up(share)
        whole = add_up(ops.ones_like(share))
        # The last node of a histogram never passes anything on.
        shifted = ops.pad(above[:, :-1], ((0, 0), (1, 0)))

        def gradient(upstream: Tensor) -> Tensor:
            # One step up moves a value's weight from its node to the next.
            upstream = ops.reshape(upstream, (-1, nodes))
            following = ops.pad(upstream[:, 1:], ((0, 0), (0, 1)))
            slopes = ops.reshape(following - upstream, (-1,))
            # NaN has no node, and what is below 0 cannot be looked up.
            slopes = ops.take(slopes, ops.maximum(segment, 0))
            slopes = ops.reshape(slopes, ops.shape(values))
            inside = ops.logical_and(values >= low, values <= high)
            inside = ops.logical_and(inside, either)
            if count is not None:
                slopes = count * slopes
            return ops.where(inside, per_unit * slopes, 0.0)

        histograms = ops.reshape(whole - above + shifted, (-1, 2, nodes))
        return histograms, gradient

    histograms = counts(values)
    return histograms[:, 0], histograms[:, 1]
