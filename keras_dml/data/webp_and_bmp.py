"""WebP and BMP in a graph, where TensorFlow's decoders need help.

The WebP decoder must be told the number of channels, and the BMP decoder does
not check whether it can read a file; both are in the header. Each public
function is also a function of the graph, which costs nothing where it is not
called.

Reference:
    WebP Container Specification; RFC 9649. Microsoft, BITMAPINFOHEADER.
"""

import tensorflow as tf

from keras_dml.data.graph_bytes import bytes_of, number
from keras_dml.utils.types import Tensor

# Flags of an extended WebP, in its byte 20.
_ANIMATION, _EXIF, _ALPHA = 2, 8, 16

# Sizes of BMP's second header: the first one that has all fields below, and
# what continues it. That of OS/2 is shorter.
_HEADERS = (40, 52, 56, 108, 124)


_in_graph = tf.function(
    input_signature=[tf.TensorSpec((), tf.string)], autograph=False
)


def is_webp(contents: Tensor) -> Tensor:
    """Whether a file starts as WebP does."""
    head = bytes_of(contents, 0, 16)
    is_known = tf.reduce_all(head[:4] == [*b"RIFF"])
    is_known &= tf.reduce_all(head[8:15] == [*b"WEBPVP8"])
    return is_known & tf.reduce_any(head[15] == [*b" LX"])


def webp_has_exif(contents: Tensor) -> Tensor:
    """Whether a WebP file announces EXIF."""
    head = bytes_of(contents, 0, 21)
    return (head[15] == ord("X")) & _has(head[20], _EXIF)


@_in_graph
def is_webp_or_bmp(contents: Tensor) -> Tensor:
    """Whether `decode_webp_or_bmp` can decode a file.

    It can decode BMP that is not compressed and has 8, 24 or 32 bits per
    pixel.
    """
    head = bytes_of(contents, 0, 34)
    size, bits, compression = (
        number(head, at, length, is_little=True)
        for at, length in ((14, 4), (28, 2), (30, 4))
    )
    is_bmp = tf.reduce_all(head[:2] == [*b"BM"]) & (compression == 0)
    is_bmp &= tf.reduce_any(size == _HEADERS)
    is_bmp &= tf.reduce_any(bits == (8, 24, 32))
    return is_bmp | is_webp(contents)


@_in_graph
def webp_or_bmp_sides(contents: Tensor) -> Tensor:
    """Width and height in the header of such a file, (2,) int64."""
    return tf.cond(
        is_webp(contents),
        lambda: _webp_sides(contents),
        lambda: _bmp_sides(contents),
    )


@_in_graph
def decode_webp_or_bmp(contents: Tensor) -> Tensor:
    """RGB pixels of such a file, (H, W, 3) uint8."""
    return tf.cond(
        is_webp(contents),
        lambda: _decode_webp(contents),
        lambda: _decode_bmp(contents),
    )


def _webp_sides(contents: Tensor) -> Tensor:
    head = bytes_of(contents, 0, 30)
    extended = [number(head, at, 3, is_little=True) + 1 for at in (24, 27)]
    bits = number(head, 21, 4, is_little=True)
    lossless = [(bits & 0x3FFF) + 1, (bits // 2**14 & 0x3FFF) + 1]
    lossy = [number(head, at, 2, is_little=True) & 0x3FFF for at in (26, 28)]
    simple = tf.where(head[15] == ord("L"), lossless, lossy)
    sides = tf.where(head[15] == ord("X"), extended, simple)
    return tf.cast(sides, "int64")


def _decode_webp(contents: Tensor) -> Tensor:
    """The first frame of an animation, or the image.

    When asked for the number of channels in the file, TensorFlow 2.21
    allocates three for an animation without transparency, and writes four. So
    it is never asked for that number.
    """
    head = bytes_of(contents, 0, 25)
    is_extended, is_lossless = head[15] == ord("X"), head[15] == ord("L")
    is_animated = is_extended & _has(head[20], _ANIMATION)
    has_alpha = is_extended & _has(head[20], _ALPHA)
    has_alpha |= is_lossless & _has(head[24], 16)
    # An animation is refused unless it says that it has all four.
    with_flag = tf.gather([bytes([x | _ALPHA]) for x in range(256)], head[20])
    start, end = (
        tf.strings.substr(contents, *x) for x in ((0, 20), (21, 2**31 - 1))
    )
    with_alpha = tf.strings.join([start, with_flag, end])
    file = tf.where(is_animated, with_alpha, contents)

    def decode(channels: int) -> Tensor:
        # The operation is older than its WebP, so servers that are older
        # load the graph, and fail on these files alone.
        return tf.io.decode_image(file, channels, expand_animations=False)

    pixels = tf.cond(
        is_animated | has_alpha, lambda: decode(4), lambda: decode(3)
    )
    return tf.ensure_shape(pixels, (None, None, None))[..., :3]


def _bmp_sides(contents: Tensor) -> Tensor:
    head = bytes_of(contents, 0, 26)
    # The height is below zero where the upper row comes first.
    sides = [number(head, at, 4, is_little=True) for at in (18, 22)]
    return tf.abs(tf.cast(sides, "int64"))


def _decode_bmp(contents: Tensor) -> Tensor:
    pixels = tf.io.decode_bmp(contents, channels=3)
    head = bytes_of(contents, 0, 30)

    def of_palette() -> Tensor:
        # TensorFlow gives the indices, in each channel. What is past the
        # palette is black.
        end, size = (number(head, x, 4, is_little=True) for x in (10, 14))
        raw = tf.strings.substr(contents, 14 + size, end - 14 - size)
        colors = tf.io.decode_raw(raw, tf.uint8, fixed_length=4 * 256)
        colors = tf.reshape(colors, (256, 4))[:, 2::-1]
        return tf.gather(colors, tf.cast(pixels[..., 0], "int32"))

    return tf.cond(head[28] == 8, of_palette, lambda: pixels)


def _has(flags: Tensor, flag: int) -> Tensor:
    return (flags & flag) > 0
