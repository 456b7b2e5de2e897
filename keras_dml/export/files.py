"""Image files of a request, decoded in any graph.

TensorFlow decodes JPEG, PNG, WebP that is not animated, and BMP of 24 or 32
bits per pixel. Its decoder of GIF keeps all frames in memory, however large
they claim to be, and that of BMP returns the indices of a palette: these are
not supported. WebP requires TensorFlow 2.21 or later where the graph runs.

An operation that fails ends the graph that it runs in, and with it the
whole request. Decoding fails on damaged files, and nothing short of
decoding tells whether it will. So the files go through a dataset, which
drops those that fail; the numbers of the others say which these were.
Datasets are operations of TensorFlow's runtime, and run wherever a
SavedModel does.

Reference:
    CIPA DC-008 (Exif 2.32), 4.5.2 and 4.6.2; WebP Container Specification.
"""

from __future__ import annotations

from keras_dml.data import View
from keras_dml.data.decode import EXIF, JPEG, MOST_PIXELS, ORIENTATION, PNG
from keras_dml.data.encoded import (
    DCT,
    Encoded,
    png_sides,
    starts_with,
    turn_of_jpeg,
    upright,
    webp_sides,
)
from keras_dml.data.resizing import Images, sides_of, to_channels
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensor

OK = "ok"
UNSUPPORTED = "unsupported"
DAMAGED = "damaged"
TOO_LARGE = "too large"

MOST_PIXELS_RESIZED = 2**24
"""Pixels of the largest image once it is resized, four bytes a channel.

Where the short side is given, long and thin images exceed it.
"""

_PARALLEL = 4
"""Files decoded at a time, each of which may be of `MOST_PIXELS`."""

_STRIP = 2**18
"""Pixels that become gray together."""

# Flags of an extended WebP, in its byte 20.
_ANIMATION, _ALPHA = 2, 16


def load_files(contents: Tensor, view: View) -> tuple[Tensor, Tensor]:
    """Decodes files, (B,) strings, to the pixels of Pillow, and views each.

    The EXIF orientation of JPEG is applied. Transparency is dropped.

    Returns:
        The status of each file, (B,) strings: "ok", "unsupported" (not a
        file of its formats), "damaged" or "too large". And their views,
        (B, *size, channels) float32, zeros where the status is not "ok".
    """
    count = tf.size(contents, tf.int64)
    files = tf.data.Dataset.from_tensor_slices(contents).enumerate()
    loaded = files.map(
        lambda row, file: (row, *_load_or_fail(file, view)),
        num_parallel_calls=_PARALLEL,
    ).ignore_errors()
    # A row behind the last, so that there is one even if all are damaged.
    nothing = tf.zeros((*view.size, view.channels))
    behind = tf.data.Dataset.from_tensors((count, DAMAGED, nothing))
    rows, status, seen = (
        loaded.concatenate(behind)
        .batch(count + 1)
        .with_options(_options())
        .get_single_element()
    )
    statuses = tf.fill([count + 1], DAMAGED)
    statuses = tf.tensor_scatter_nd_update(statuses, rows[:, None], status)
    shape = tf.stack([count + 1, *nothing.shape])
    views = tf.scatter_nd(rows[:, None], seen, shape)
    return statuses[:-1], tf.ensure_shape(views[:-1], (None, *nothing.shape))


def _options() -> tf.data.Options:
    """To start a dataset takes longer than to decode a small file."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return options


def _load_or_fail(contents: Tensor, view: View) -> tuple[Tensor, Tensor]:
    nothing = tf.zeros((*view.size, view.channels))
    too_large = tf.constant(TOO_LARGE), nothing

    def decoded() -> tuple[Tensor, Tensor]:
        image = encoded(contents) if view.fast else decoded_whole(contents)
        # The header of BMP was not looked at.
        return tf.cond(
            _fits(tf.cast(sides_of(image), "int64"), view),
            lambda: (tf.constant(OK), _view_of(image, view)),
            lambda: too_large,
        )

    return tf.case(
        [
            (
                ~_is_supported(contents),
                lambda: (tf.constant(UNSUPPORTED), nothing),
            ),
            (~_fits(_sides(contents), view), lambda: too_large),
        ],
        default=decoded,
    )


def _view_of(image: Images, view: View) -> Tensor:
    """The view of RGB pixels, (H, W, 3) uint8, or of a file.

    To become gray takes ten times the memory of an image, so a large one does
    it in strips.
    """
    if view.channels == 1 and tf.is_tensor(image):
        image = tf.cond(
            tf.size(image) > 3 * _STRIP,
            lambda: _gray_in_strips(image),
            lambda: to_channels(image, 1),
        )
    return view.apply(image)


def _gray_in_strips(pixels: Tensor) -> Tensor:
    """`to_channels` with 1, of (H, W, 3) uint8."""
    height, width, _ = tf.unstack(tf.shape(pixels))
    count = tf.maximum(_STRIP // width, 1)

    def add(top: Tensor, gray: Tensor) -> tuple[Tensor, Tensor]:
        strip = to_channels(pixels[top : top + count], 1)
        rows = top + tf.range(tf.shape(strip)[0])
        # Strips that are joined at the end would be in memory twice.
        gray = tf.raw_ops.InplaceUpdate(x=gray, i=rows, v=strip)
        return top + count, gray

    empty = tf.raw_ops.Empty(shape=(height, width, 1), dtype=tf.uint8)
    _, gray = tf.while_loop(
        lambda top, gray: top < height, add, (0, empty), parallel_iterations=1
    )
    return gray


def _fits(both: Tensor, view: View) -> Tensor:
    """Whether a file with these sides is not too large."""
    shortest, longest = tf.reduce_min(both), tf.reduce_max(both)
    fits = shortest * longest <= MOST_PIXELS
    if view.frame:
        return fits  # Every image becomes as large as that.
    area = view.short_side**2
    return fits & (area * longest <= MOST_PIXELS_RESIZED * shortest)


def _is_supported(contents: Tensor) -> Tensor:
    """Whether a file starts like those that are decoded."""
    head = _head(contents)
    is_animated = (head[15] == ord("X")) & (head[20] & _ANIMATION > 0)
    is_bmp = starts_with(contents, b"BM") & (_number(head, 30, 4) == 0)
    is_bmp &= tf.reduce_any(_number(head, 28, 2) == [24, 32])
    is_known = starts_with(contents, JPEG) | starts_with(contents, PNG)
    return is_known | is_bmp | (_is_webp(head) & ~is_animated)


def _sides(contents: Tensor) -> Tensor:
    """Height and width in a file's header, in either order, (2,) int64.

    They are zeros for BMP, which cannot claim more pixels than it contains.
    The graph raises an error if the header is truncated.
    """
    head, shape = _head(contents), tf.io.extract_jpeg_shape
    return tf.case(
        [
            (
                starts_with(contents, JPEG),
                lambda: tf.cast(shape(contents)[:2], "int64"),
            ),
            (starts_with(contents, PNG), lambda: png_sides(contents)),
            (_is_webp(head), lambda: _webp_sides(contents, head)),
        ],
        default=lambda: tf.zeros(2, "int64"),
    )


def encoded(contents: Tensor) -> Encoded:
    """A supported file, decoded as far as it is needed."""
    return Encoded(
        contents,
        lambda: _orientation(contents),
        lambda: _decode_other(contents),
    )


def decoded_whole(contents: Tensor) -> Tensor:
    """RGB pixels of a supported file, upright, (H, W, 3) uint8."""

    def of_jpeg() -> Tensor:
        stored = tf.io.decode_jpeg(contents, 3, dct_method=DCT)
        turn = turn_of_jpeg(contents, lambda: _orientation(contents))
        return upright(stored, turn)

    pixels = tf.cond(
        starts_with(contents, JPEG), of_jpeg, lambda: _decode_other(contents)
    )
    return tf.ensure_shape(pixels, (None, None, 3))


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


def _webp_sides(contents: Tensor, head: Tensor) -> Tensor:
    extended = [_number(head, at, 3) + 1 for at in (24, 27)]
    bits = _number(head, 21, 4)
    lossless = [bits % 2**14 + 1, bits // 2**14 % 2**14 + 1]
    simple = tf.where(head[15] == ord("L"), lossless, webp_sides(contents))
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
