"""Image files in any graph: which formats, how large, and their pixels.

TensorFlow decodes JPEG, PNG, WebP that is not animated, and BMP of 24 or 32
bits per pixel. Its decoder of GIF keeps all frames in memory, however large
they claim to be, and that of BMP returns the indices of a palette: these are
not supported.

Reference:
    CIPA DC-008 (Exif 2.32), 4.5.2 and 4.6.2; WebP Container Specification.
"""

from keras_dml.data.decode import EXIF, JPEG, ORIENTATION, PNG
from keras_dml.data.encoded import (
    Encoded,
    decode_jpeg,
    is_plain_jpeg,
    png_sides,
    starts_with,
    upright,
)
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensor

# Flags of an extended WebP, in its byte 20.
_ANIMATION, _ALPHA = 2, 16

_in_graph = tf.function(
    input_signature=[tf.TensorSpec((), tf.string)], autograph=False
)


@_in_graph
def is_supported(contents: Tensor) -> Tensor:
    """Whether a file starts like those that `decode_contents` decodes."""
    head = _head(contents)
    is_animated = (head[15] == ord("X")) & (head[20] & _ANIMATION > 0)
    is_bmp = starts_with(contents, b"BM") & (_number(head, 30, 4) == 0)
    is_bmp &= tf.reduce_any(_number(head, 28, 2) == [24, 32])
    is_known = starts_with(contents, JPEG) | starts_with(contents, PNG)
    return is_known | is_bmp | (_is_webp(head) & ~is_animated)


@_in_graph
def sides(contents: Tensor) -> Tensor:
    """Height and width in a file's header, in either order, (2,) int64.

    They are zeros for BMP, which cannot claim more pixels than it contains.
    The graph raises an error if the header is truncated.
    """
    head = _head(contents)
    return tf.case(
        [
            (starts_with(contents, JPEG), lambda: _jpeg_sides(contents)),
            (starts_with(contents, PNG), lambda: png_sides(contents)),
            (_is_webp(head), lambda: _webp_sides(head)),
        ],
        default=lambda: tf.zeros(2, "int64"),
    )


def decode_contents(contents: Tensor) -> Tensor:
    """RGB pixels of a supported file, (H, W, 3) uint8.

    They are those of Pillow, with the EXIF orientation of JPEG applied.
    Transparency is dropped. WebP requires TensorFlow 2.21 or later where the
    graph runs.
    """
    pixels = tf.cond(
        is_plain_jpeg(contents),
        lambda: decode_jpeg(contents),
        lambda: _decode_any(contents),
    )
    return tf.ensure_shape(pixels, (None, None, 3))


def encoded(contents: Tensor) -> Encoded:
    """A supported file, decoded as far as it is needed, else as above."""
    return Encoded(
        contents,
        lambda: _orientation(contents),
        lambda: _decode_other(contents),
    )


@_in_graph
def _decode_any(contents: Tensor) -> Tensor:
    return tf.cond(
        starts_with(contents, JPEG),
        lambda: upright(decode_jpeg(contents), _orientation(contents)),
        lambda: _decode_other(contents),
    )


def _decode_other(contents: Tensor) -> Tensor:
    head = _head(contents)
    has_alpha = (head[15] == ord("X")) & (head[20] & _ALPHA > 0)
    has_alpha |= (head[15] == ord("L")) & (head[24] & 16 > 0)

    def decode(channels: int) -> Tensor:
        # The operation is older than its WebP: an older TensorFlow loads the
        # graph, and fails on these files alone.
        found = tf.io.decode_image(contents, channels, expand_animations=False)
        return tf.ensure_shape(found, (None, None, None))[..., :3]

    return tf.cond(
        _is_webp(head) & has_alpha, lambda: decode(4), lambda: decode(3)
    )


def _head(contents: Tensor) -> Tensor:
    """The first bytes of a file, (34,) int64, padded with zeros."""
    head = tf.io.decode_raw(contents, tf.uint8, fixed_length=34)
    return tf.cast(head, "int64")


def _number(head: Tensor, start: int, size: int) -> Tensor:
    """A number in little-endian order."""
    weights = [256**i for i in range(size)]
    return tf.reduce_sum(head[start : start + size] * weights)


def _is_webp(head: Tensor) -> Tensor:
    is_known = tf.reduce_all(head[:4] == [*b"RIFF"])
    is_known &= tf.reduce_all(head[8:15] == [*b"WEBPVP8"])
    return is_known & tf.reduce_any(head[15] == [*b" LX"])


def _jpeg_sides(contents: Tensor) -> Tensor:
    return tf.cast(tf.io.extract_jpeg_shape(contents)[:2], "int64")


def _webp_sides(head: Tensor) -> Tensor:
    extended = [_number(head, at, 3) + 1 for at in (24, 27)]
    bits = _number(head, 21, 4)
    lossless = [bits % 2**14 + 1, bits // 2**14 % 2**14 + 1]
    lossy = [_number(head, at, 2) % 2**14 for at in (26, 28)]
    simple = tf.where(head[15] == ord("L"), lossless, lossy)
    return tf.where(head[15] == ord("X"), extended, simple)


def _orientation(contents: Tensor) -> Tensor:
    """The orientation in the EXIF block of a JPEG file, () int32.

    It is a short number in the first directory of the block; 1 if there is
    none, or another number.
    """
    parts = tf.strings.split(contents, EXIF, maxsplit=1)
    block = tf.concat([parts, [""]], 0)[1]
    is_little = starts_with(block, b"II*\0")
    little, big = (
        tf.cast(
            tf.io.decode_raw(
                block, tf.uint16, little_endian=order, fixed_length=2**16
            ),
            "int32",
        )
        for order in (True, False)
    )
    words = tf.where(is_little, little, big)
    start = tf.where(is_little, words[2], words[3]) // 2 + 1
    count = tf.minimum(words[start - 1], (tf.size(words) - start) // 6)
    entries = tf.reshape(words[start : start + 6 * count], (-1, 6))
    # Tag, type, and number of values in two words.
    is_short = tf.reduce_all(entries[:, :2] == (ORIENTATION, 3), axis=1)
    is_short &= tf.reduce_sum(entries[:, 2:4], axis=1) == 1
    values = tf.boolean_mask(entries[:, 4], is_short)
    value = tf.concat([values, [1]], 0)[0]
    is_known = is_little | starts_with(block, b"MM\0*")
    return tf.where(is_known & (value >= 1) & (value <= 8), value, 1)
