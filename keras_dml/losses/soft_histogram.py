"""Histograms with a gradient."""

from typing import Any

import keras
from keras import ops

from keras_dml.losses.gradients import custom_gradient
from keras_dml.utils.types import Tensor


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
    proportion to its nearness, so that the counts have a gradient. Memory
    is O(B·R) whatever the number of nodes.

    Args:
        values: (B, R). What lies outside [low, high] counts for the node
            at that end, without gradient.
        positive: (B, R) boolean, or float: how much each entry counts.
        negative: Of the same kind, 0 wherever `positive` is not.
        low: Value of the first node.
        high: Value of the last node.
        nodes: Number of nodes, 2 or more.

    Returns:
        `(of_positives, of_negatives)`: (B, nodes) float32 each.
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
            slopes = ops.reshape(ops.take(slopes, segment), ops.shape(values))
            inside = ops.logical_and(values >= low, values <= high)
            inside = ops.logical_and(inside, either)
            if count is not None:
                slopes = count * slopes
            return ops.where(inside, per_unit * slopes, 0.0)

        histograms = ops.reshape(whole - above + shifted, (-1, 2, nodes))
        return histograms, gradient

    histograms = counts(values)
    return histograms[:, 0], histograms[:, 1]
