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
from keras_dml.data.decode import MOST_PIXELS, decode_contents, sides
from keras_dml.data.webp_and_bmp import is_webp_or_bmp
from keras_dml.utils.types import Tensor

OK = "ok"
UNSUPPORTED = "unsupported"
DAMAGED = "damaged"
TOO_LARGE = "too large"

MOST_PIXELS_RESIZED = 2**24
"""Pixels of the largest image once it is resized, four bytes a channel.

Where the short side is given, long and thin images exceed it.
"""

_JPEG = b"\xff\xd8\xff"
_PNG = b"\x89PNG\r\n\x1a\n"
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
    both = sides(contents)
    shortest, longest = tf.reduce_min(both), tf.reduce_max(both)
    fits = shortest * longest <= MOST_PIXELS
    if view.frame:
        return fits  # Every image becomes as large as that.
    area = view.short_side**2
    return fits & (area * longest <= MOST_PIXELS_RESIZED * shortest)


def _starts_with(contents: Tensor, start: bytes) -> Tensor:
    return tf.strings.substr(contents, 0, len(start)) == start
