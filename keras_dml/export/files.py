"""Image files of a request, each decoded by itself, in any graph.

An operation that fails ends the graph that it runs in, and with it the
whole request. Decoding fails on damaged files, and nothing short of
decoding tells whether it will. So each file goes through a dataset of its
own, which drops what fails; what then comes next in line is a stand-in
that says so. Datasets are operations of TensorFlow's runtime, and run
wherever a SavedModel does.
"""

import tensorflow as tf

from keras_dml.data import View
from keras_dml.data.decode import decode_contents
from keras_dml.data.webp_and_bmp import is_webp_or_bmp, webp_or_bmp_sides
from keras_dml.utils.types import Tensor

OK = "ok"
UNSUPPORTED = "unsupported"
DAMAGED = "damaged"
TOO_LARGE = "too large"

MOST_PIXELS = 2**26
"""Pixels of the largest image that is decoded: 67 million.

A file of a few kilobytes can claim to hold an image of gigabytes.
"""

MOST_PIXELS_RESIZED = MOST_PIXELS // 4
"""The same, once it is resized: then each channel takes four bytes.

Where the short side is given, long and thin images exceed it.
"""

_JPEG = b"\xff\xd8\xff"
_PNG = b"\x89PNG\r\n\x1a\n"
_GIF = b"GIF8"
_GIFS = (b"GIF87a", b"GIF89a")


def load_files(contents: Tensor, view: View) -> tuple[Tensor, Tensor]:
    """Decodes files as `decode_contents` does, (B,) strings, and views each.

    Returns:
        The status of each file, (B,) strings: "ok", "unsupported" (not a
        file of its formats), "damaged" or "too large". And their views,
        (B, *size, channels) float32, zeros where the status is not "ok".
    """
    shape = (*view.size, view.channels)
    specs = (tf.TensorSpec((), "string"), tf.TensorSpec(shape, "float32"))
    return tf.map_fn(
        lambda file: _load(file, view), contents, fn_output_signature=specs
    )


def _load(contents: Tensor, view: View) -> tuple[Tensor, Tensor]:
    nothing = tf.zeros((*view.size, view.channels))
    file = tf.data.Dataset.from_tensors(contents)
    loaded = file.map(lambda x: _load_or_fail(x, view)).ignore_errors()
    damaged = tf.data.Dataset.from_tensors((tf.constant(DAMAGED), nothing))
    return loaded.concatenate(damaged).take(1).get_single_element()


def _load_or_fail(contents: Tensor, view: View) -> tuple[Tensor, Tensor]:
    nothing = tf.zeros((*view.size, view.channels))
    status = tf.cond(
        _is_supported(contents),
        lambda: tf.where(_fits(contents, view), OK, TOO_LARGE),
        lambda: tf.constant(UNSUPPORTED),
    )
    seen = tf.cond(
        status == OK,
        lambda: view.apply(decode_contents(contents)),
        lambda: nothing,
    )
    return status, seen


def _is_supported(contents: Tensor) -> Tensor:
    by_start = [_starts_with(contents, x) for x in (_JPEG, _PNG, *_GIFS)]
    return tf.cond(
        tf.reduce_any(by_start),
        lambda: tf.constant(True),
        lambda: is_webp_or_bmp(contents),
    )


def _fits(contents: Tensor, view: View) -> Tensor:
    sides = _sides(contents)
    shortest, longest = tf.reduce_min(sides), tf.reduce_max(sides)
    fits = shortest * longest <= MOST_PIXELS
    if view.frame:
        return fits  # Every image becomes as large as that.
    area = view.short_side**2
    return fits & (area * longest <= MOST_PIXELS_RESIZED * shortest)


def _sides(contents: Tensor) -> Tensor:
    """Height and width in either order, (2,) int64, from the header."""

    def read(start: int, size: int, dtype: str, **kwargs: bool) -> Tensor:
        raw = tf.strings.substr(contents, start, size)
        # Fails if the file ends before.
        sides = tf.ensure_shape(tf.io.decode_raw(raw, dtype, **kwargs), (2,))
        return tf.cast(sides, "int64")

    def of_jpeg() -> Tensor:
        return tf.cast(tf.io.extract_jpeg_shape(contents)[:2], "int64")

    return tf.case(
        [
            (_starts_with(contents, _JPEG), of_jpeg),
            (
                _starts_with(contents, _PNG),
                lambda: read(16, 8, "int32", little_endian=False),
            ),
            (
                _starts_with(contents, _GIF),
                lambda: read(6, 4, "uint16", little_endian=True),
            ),
        ],
        default=lambda: webp_or_bmp_sides(contents),
    )


def _starts_with(contents: Tensor, start: bytes) -> Tensor:
    return tf.strings.substr(contents, 0, len(start)) == start
