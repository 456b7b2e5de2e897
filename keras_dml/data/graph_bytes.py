"""Bytes of a file in a graph, and the integers that they encode."""

import tensorflow as tf

from keras_dml.utils.types import Tensor


def bytes_of(contents: Tensor, start: Tensor | int, size: int) -> Tensor:
    """The bytes of a file, (size,) int32, padded with zeros."""
    return padded_bytes(tf.strings.substr(contents, start, size), size)


def padded_bytes(raw: Tensor, size: int) -> Tensor:
    """The bytes of a string, (size,) int32, padded with zeros."""
    return tf.cast(tf.io.decode_raw(raw, "uint8", fixed_length=size), "int32")


def number(
    block: Tensor, start: Tensor | int, size: int, is_little: Tensor | bool
) -> Tensor:
    """The integer of `size` bytes from `start`, () int32."""
    return numbers(tf.slice(block, [start], [size])[None], is_little)[0]


def numbers(digits: Tensor, is_little: Tensor | bool) -> Tensor:
    """Integers of rows of bytes, (N, size) int32; some overflow."""
    weights = [256**i for i in range(digits.shape[1])]
    weights = tf.constant([(x + 2**31) % 2**32 - 2**31 for x in weights])
    weights = tf.where(is_little, weights, weights[::-1])
    return tf.reduce_sum(digits * weights, axis=1)
