"""Histograms with a gradient."""

from keras import ops

from keras_dml.types import Tensor


def soft_histogram(
    values: Tensor, weights: Tensor, low: float, high: float, nodes: int
) -> Tensor:
    """A histogram of each row, every value split over its two nodes.

    A value between two of the equally spaced nodes counts for each in
    proportion to its nearness, so that the counts have a gradient. Memory
    is O(B·R) whatever the number of nodes.

    Args:
        values: (B, R). What lies outside [low, high] counts for the node
            at that end, without gradient.
        weights: (B, R) float: how much each value counts.
        low: Value of the first node.
        high: Value of the last node.
        nodes: Number of nodes, 2 or more.

    Returns:
        (B, nodes) float32.
    """
    position = ops.clip(values, low, high)
    position = (position - low) * ((nodes - 1) / (high - low))
    node = ops.clip(
        ops.cast(ops.floor(ops.stop_gradient(position)), "int32"),
        0,
        nodes - 2,
    )
    upper = (position - ops.cast(node, "float32")) * weights
    rows = ops.shape(values)[0]
    segment = node + nodes * ops.arange(rows, dtype="int32")[:, None]
    flat = ops.concatenate(
        [ops.reshape(weights - upper, (-1,)), ops.reshape(upper, (-1,))]
    )
    segments = ops.concatenate(
        [ops.reshape(segment, (-1,)), ops.reshape(segment + 1, (-1,))]
    )
    counts = ops.segment_sum(flat, segments, num_segments=rows * nodes)
    return ops.reshape(counts, (-1, nodes))
