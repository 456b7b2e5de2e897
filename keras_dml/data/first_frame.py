"""The first frame of a GIF, in a graph.

TensorFlow's decoder keeps all frames in memory before it returns the first,
and gives it the size of the largest. So it is given a file that ends after the
first frame, which is found by walking through blocks that each state their
length.

Reference:
    CompuServe, Graphics Interchange Format, Version 89a, 1990.
"""

import tensorflow as tf

from keras_dml.data.graph_bytes import bytes_of, number
from keras_dml.utils.types import Tensor

_SCREEN = 6
_HEADER = 13
_EXTENSION, _IMAGE = 0x21, 0x2C
_DESCRIPTOR = 10
_TRAILER = b";"

_MOST_RUNS = 4096
"""Number of runs of blocks of equal size before the end of the first frame.

Encoders fill all blocks but the last one; a file may also have one block per
byte, and take time in proportion to its length.
"""

_LOOKED_AT = 256
"""Number of blocks whose sizes are compared at a time."""


def first_frame(contents: Tensor) -> Tensor:
    """A GIF file that contains only the first frame of another.

    Extensions are removed, and transparency with them: TensorFlow's decoder
    would make it black, and it is dropped for all formats. The graph raises an
    error if the file ends before the frame does.
    """
    data = tf.io.decode_raw(contents, tf.uint8)
    at, left = _find_image(data)
    after = at + _DESCRIPTOR + _table(_byte(data, at + _DESCRIPTOR - 1)) + 1
    end, left = _skip_blocks(data, after, left)
    with tf.control_dependencies([tf.debugging.assert_positive(left)]):
        head = tf.strings.substr(contents, 0, _start(data))
        return head + tf.strings.substr(contents, at, end - at) + _TRAILER


def gif_sides(contents: Tensor) -> Tensor:
    """Width and height needed to decode the first frame, (2,) int64.

    They are those of the screen, or of the frame if it is larger.
    """
    at, _ = _find_image(tf.io.decode_raw(contents, tf.uint8))
    return tf.maximum(_sides(contents, _SCREEN), _sides(contents, at + 5))


def _sides(contents: Tensor, at: Tensor | int) -> Tensor:
    both = bytes_of(contents, at, 4)
    sides = [number(both, x, 2, is_little=True) for x in (0, 2)]
    return tf.cast(sides, "int64")


def _find_image(data: Tensor) -> tuple[Tensor, Tensor]:
    """Where the first image starts, and how many runs may follow."""
    at, left = tf.while_loop(
        lambda at, left: (_byte(data, at) == _EXTENSION) & (left > 0),
        lambda at, left: _skip_blocks(data, at + 2, left),
        (_start(data), tf.constant(_MOST_RUNS)),
    )
    is_there = tf.debugging.assert_equal(_byte(data, at), _IMAGE)
    with tf.control_dependencies([is_there]):
        return tf.identity(at), left


def _start(data: Tensor) -> Tensor:
    """Where the header and the color table end."""
    return _HEADER + _table(_byte(data, _HEADER - 3))


def _skip_blocks(
    data: Tensor, at: Tensor, left: Tensor
) -> tuple[Tensor, Tensor]:
    """Where a chain of blocks ends, and how many runs are left."""
    last = tf.size(data) - 1

    def skip_run(at: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        size = _byte(data, at)
        ahead = at + (size + 1) * tf.range(1, _LOOKED_AT)
        sizes = tf.gather(data, tf.minimum(ahead, last))
        is_same = (tf.cast(sizes, "int32") == size) & (ahead <= last)
        same = tf.reduce_sum(tf.math.cumprod(tf.cast(is_same, "int32")))
        return at + (size + 1) * (1 + same), left - 1

    at, left = tf.while_loop(
        lambda at, left: (_byte(data, at) > 0) & (left > 0),
        skip_run,
        (at, left),
    )
    return at + 1, left - 1


def _table(flags: Tensor) -> Tensor:
    """Number of bytes of a color table, from the flags that announce it."""
    return tf.where(flags >= 128, 3 * 2 ** (flags % 8 + 1), 0)


def _byte(data: Tensor, at: Tensor | int) -> Tensor:
    """A byte as a number; the graph raises an error if the file has ended."""
    return tf.cast(data[at], "int32")
