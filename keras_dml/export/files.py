"""Image files of a request, decoded in any graph.

TensorFlow decodes JPEG, PNG, GIF, and BMP of 24 or 32 bits per pixel. Of a BMP
with a palette it would return the indices, so these are not supported.

An operation that fails ends the graph that it runs in, and with it the whole
request. Decoding fails on damaged files, and nothing short of decoding tells
whether it will. So the files go through a dataset, which drops those that fail;
the numbers of the others show which ones failed. Datasets are operations of
TensorFlow's runtime, and run wherever a SavedModel does.

Reference:
    CIPA DC-008 (Exif 2.32), 4.5.2 and 4.6.2; GIF89a Specification, 18 to 26;
    PNG Specification (Third Edition), 5.3 and 11.3.3.6.
"""

from __future__ import annotations

import numpy as np

from keras_dml.data import View
from keras_dml.data.decode import (
    EXIF,
    JPEG,
    MAX_PIXELS,
    MAX_SIDE_RATIO,
    ORIENTATION,
    PNG,
)
from keras_dml.data.encoded import (
    DCT,
    Encoded,
    may_have_exif,
    png_sides,
    starts_with,
    turn_of_jpeg,
    upright,
)
from keras_dml.data.resizing import to_channels
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensor

OK = "ok"
UNSUPPORTED = "unsupported"
DAMAGED = "damaged"
TOO_LARGE = "too large"

_PARALLEL_FILES = 4
"""Files decoded at a time, each of which may be of `MAX_PIXELS`."""

_LARGE_IMAGE = 2**22
"""Pixels above which an image becomes gray row by row."""

_GIF_HEAD = 2**16
"""Bytes at the start of a GIF in which its first frame must begin."""

_EXIF_HEAD = 2**16
"""Bytes of an EXIF block in which its first directory must be."""


def load_files(contents: Tensor, view: View) -> tuple[Tensor, Tensor]:
    """Statuses of files, (B,) strings, and views, (B, *size, channels) float32.

    Pixels are those of Pillow, upright, without transparency, and of the first
    frame of a GIF; views are zeros where the status is not "ok".
    """
    count = tf.size(contents, tf.int64)
    files = tf.data.Dataset.from_tensor_slices(contents).enumerate()
    loaded = files.map(
        lambda row, file: (row, *_load_or_fail(file, view)),
        num_parallel_calls=_PARALLEL_FILES,
    ).ignore_errors()
    # Starting a dataset takes longer than decoding a small file.
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    # The filler is a row that exists even if all files are damaged.
    nothing = tf.zeros((*view.size, view.channels))
    filler = tf.data.Dataset.from_tensors((count, DAMAGED, nothing))
    rows, status, loaded_views = (
        loaded.concatenate(filler)
        .batch(count + 1)
        .with_options(options)
        .get_single_element()
    )
    statuses = tf.fill([count + 1], DAMAGED)
    statuses = tf.tensor_scatter_nd_update(statuses, rows[:, None], status)
    shape = tf.stack([count + 1, *nothing.shape])
    views = tf.scatter_nd(rows[:, None], loaded_views, shape)
    return statuses[:-1], tf.ensure_shape(views[:-1], (None, *nothing.shape))


def _load_or_fail(contents: Tensor, view: View) -> tuple[Tensor, Tensor]:
    """Status and view of one file; an error if it is damaged."""
    sides = _sides(contents)
    shortest, longest = tf.reduce_min(sides), tf.reduce_max(sides)
    fits = shortest * longest <= MAX_PIXELS
    fits &= longest <= MAX_SIDE_RATIO * shortest
    nothing = tf.zeros((*view.size, view.channels))
    return tf.case(
        [
            (shortest < 0, lambda: (tf.constant(UNSUPPORTED), nothing)),
            (~fits, lambda: (tf.constant(TOO_LARGE), nothing)),
        ],
        default=lambda: (tf.constant(OK), _view_of(contents, view)),
    )


def _sides(contents: Tensor) -> Tensor:
    """Height and width in a file's header, in either order, (2,) int64.

    They are -1 if the file is not supported; a truncated header is an error.
    """
    readers = {
        JPEG: lambda: tf.cast(tf.io.extract_jpeg_shape(contents)[:2], "int64"),
        PNG: lambda: png_sides(contents),
        b"GIF8": lambda: _gif_sides(contents),
        b"BM": lambda: _bmp_sides(contents),
    }
    return tf.case(
        [(starts_with(contents, x), read) for x, read in readers.items()],
        default=lambda: tf.constant([-1, -1], tf.int64),
    )


def _bmp_sides(contents: Tensor) -> Tensor:
    head = _head(contents, 34)
    is_plain = _number(head, 30, 4) == 0
    is_plain &= tf.reduce_any(_number(head, 28, 2) == [24, 32])
    both = tf.stack([_number(head, 18, 4), _number(head, 22, 4)])
    # The height is negative where the first row is the upper one.
    return tf.where(is_plain, tf.minimum(both, 2**32 - both), -1)


def _gif_sides(contents: Tensor) -> Tensor:
    """Sides of the first frame, which may differ from those of the screen."""
    head = _head(contents, _GIF_HEAD)
    table = tf.where(head[10] >= 128, 3 * 2 ** (head[10] % 8 + 1), 0)

    def skip(at: Tensor, in_extension: Tensor) -> tuple[Tensor, Tensor]:
        step = tf.where(in_extension, head[at] + 1, 2)
        return at + step, ~in_extension | (head[at] > 0)

    # An extension is "!", a label, and blocks that start with their length,
    # the last of which is empty.
    at, _ = tf.while_loop(
        lambda at, in_extension: in_extension | (head[at] == ord("!")),
        skip,
        (13 + table, False),
    )
    is_frame = tf.debugging.assert_equal(head[at], np.int64(ord(",")))
    with tf.control_dependencies([is_frame]):
        return tf.stack([_number(head, at + 5, 2), _number(head, at + 7, 2)])


def _view_of(contents: Tensor, view: View) -> Tensor:
    if view.fast:
        # It is decoded as far as the view needs it.
        file = Encoded(
            contents,
            lambda: _orientation_of_jpeg(contents),
            lambda: _decode_other(contents),
        )
        return view.apply(file)
    pixels = decode_whole(contents)
    if view.channels == 1:
        # Conversion to gray takes ten times the memory of the pixels.
        pixels = tf.cond(
            tf.size(pixels) > 3 * _LARGE_IMAGE,
            lambda: tf.map_fn(
                lambda row: to_channels(pixels[row], 1),
                tf.range(tf.shape(pixels)[0]),
                fn_output_signature=tf.TensorSpec((None, 1), tf.uint8),
                parallel_iterations=1,
            ),
            lambda: to_channels(pixels, 1),
        )
    return view.apply(pixels)


def decode_whole(contents: Tensor) -> Tensor:
    """RGB pixels of a supported file, upright, (H, W, 3) uint8."""

    def decode_jpeg() -> Tensor:
        turn = turn_of_jpeg(contents, lambda: _orientation_of_jpeg(contents))
        return upright(tf.io.decode_jpeg(contents, 3, dct_method=DCT), turn)

    pixels = tf.cond(
        starts_with(contents, JPEG),
        decode_jpeg,
        lambda: _decode_other(contents),
    )
    return tf.ensure_shape(pixels, (None, None, 3))


def _decode_other(contents: Tensor) -> Tensor:
    pixels = tf.io.decode_image(contents, 3, expand_animations=False)
    pixels = tf.ensure_shape(pixels, (None, None, 3))
    upright_pixels = tf.cond(
        starts_with(contents, PNG),  # GIF and BMP have no EXIF.
        lambda: upright(pixels, _orientation_of(_exif_of_png(contents))),
        lambda: pixels,
    )
    return tf.ensure_shape(upright_pixels, (None, None, 3))


def _head(contents: Tensor, size: int) -> Tensor:
    """The first bytes of a file, (size,) int64, padded with zeros."""
    head = tf.io.decode_raw(contents, tf.uint8, fixed_length=size)
    return tf.cast(head, "int64")


def _number(head: Tensor, start: int | Tensor, size: int) -> Tensor:
    weights = [256**i for i in range(size)]
    return tf.reduce_sum(head[start : start + size] * weights)


def _orientation_of_jpeg(contents: Tensor) -> Tensor:
    parts = tf.strings.split(contents, EXIF, maxsplit=1)
    return _orientation_of(tf.concat([parts, [""]], 0)[1])


def _exif_of_png(contents: Tensor) -> Tensor:
    """The last EXIF block of a PNG file, () string; empty if there is none.

    A chunk is the length of its data, a name, the data and a checksum.
    """
    size = tf.strings.length(contents)
    has_exif = may_have_exif(contents)

    def skip(at: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
        name = tf.strings.substr(contents, at + 4, 4)
        length = tf.strings.substr(contents, at, 4)
        length = _number(_head(length, 4)[::-1], 0, 4)
        behind = at + 12 + tf.cast(tf.minimum(length, 2**30), "int32")
        block = tf.cond(
            name == "eXIf",
            lambda: tf.strings.substr(contents, at + 8, behind - at - 12),
            lambda: block,
        )
        return tf.where(name == "IEND", size, behind), block

    return tf.while_loop(
        lambda at, _: has_exif & (at + 12 <= size), skip, (8, "")
    )[1]


def _orientation_of(exif: Tensor) -> Tensor:
    """`exif_orientation` of an EXIF block, () int32."""
    head = _head(exif, _EXIF_HEAD)
    is_little = starts_with(exif, b"II")

    def number(digits: Tensor) -> Tensor:
        """Numbers from their bytes, (..., size)."""
        weights = [256**i for i in range(digits.shape[-1])]
        digits = tf.where(is_little, digits, digits[..., ::-1])
        return tf.reduce_sum(digits * weights, -1)

    start = tf.minimum(number(head[4:8]), _EXIF_HEAD - 2)
    count = number(tf.slice(head, [start], [2]))
    entries = head[start + 2 :]
    count = tf.minimum(count, tf.size(entries, tf.int64) // 12)
    entries = tf.reshape(entries[: 12 * count], (-1, 12))
    # Tag, type, number of values, and a value: a byte, a short or a long.
    is_found = number(entries[:, :2]) == ORIENTATION
    entry = tf.boolean_mask(entries, is_found)
    entry = tf.concat([entry, tf.zeros((1, 12), tf.int64)], 0)[0]
    values = tf.stack([number(entry[8 : 8 + size]) for size in (1, 2, 4)])
    is_type = number(entry[2:4]) == tf.constant([1, 3, 4], tf.int64)
    value = tf.reduce_sum(tf.where(is_type, values, 0))
    is_known = is_little | starts_with(exif, b"MM")
    is_known &= (number(entry[4:8]) == 1) & (value >= 1) & (value <= 8)
    return tf.cast(tf.where(is_known, value, 1), "int32")
