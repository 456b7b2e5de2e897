"""Visiting the marked entries of all rows in turn, without index lists.

A running count along the rows would tell which entry is whose k-th, but it
takes longer than all else that a loss does.
"""

from keras import ops

from keras_dml.utils.types import Tensor


def turns(mask: Tensor) -> Tensor:
    """(B, R) scores: the number of columns from each True to the end.

    The first True of a row has the largest score; 0 where the mask is
    False.
    """
    count = ops.shape(mask)[1]
    columns = ops.arange(count, dtype="float32")
    return ops.where(mask, ops.cast(count, "float32") - columns, 0.0)


def next_turn(scores: Tensor, last: Tensor) -> Tensor:
    """(B, 1): the largest score of each row below `last`, 0 if none."""
    left = ops.where(scores < last, scores, 0.0)
    return ops.max(left, axis=1, keepdims=True)


def entries(values: Tensor, index: Tensor) -> Tensor:
    """(B, 1): the value of each row, (B, R), at its index, (B,) int32."""
    rows, columns = ops.shape(values)[:2]
    places = columns * ops.arange(rows, dtype="int32") + index
    return ops.take(ops.reshape(values, (-1,)), places)[:, None]
