"""Image files of a request, decoded in any graph.

An operation that fails ends the graph that it runs in, and with it the
whole request. Decoding fails on damaged files, and nothing short of
decoding tells whether it will. So the files go through a dataset, which
drops those that fail; the numbers of the others say which these were.
Datasets are operations of TensorFlow's runtime, and run wherever a
SavedModel does.
"""

from __future__ import annotations

from keras_dml.data import View
from keras_dml.data.decode import MOST_PIXELS
from keras_dml.data.resizing import Images, sides_of, to_channels
from keras_dml.export.decoding import (
    decode_contents,
    encoded,
    is_supported,
    sides,
)
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


def load_files(contents: Tensor, view: View) -> tuple[Tensor, Tensor]:
    """Decodes files as `decode_contents` does, (B,) strings, and views each.

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

    def decoded() -> tuple[Tensor, Tensor]:
        image = encoded(contents) if view.fast else decode_contents(contents)
        # The header of BMP was not looked at.
        return tf.cond(
            _fits(tf.cast(sides_of(image), "int64"), view),
            lambda: (tf.constant(OK), _view_of(image, view)),
            lambda: (tf.constant(TOO_LARGE), nothing),
        )

    def checked() -> tuple[Tensor, Tensor]:
        return tf.cond(
            _fits(sides(contents), view),
            decoded,
            lambda: (tf.constant(TOO_LARGE), nothing),
        )

    return tf.cond(
        is_supported(contents),
        checked,
        lambda: (tf.constant(UNSUPPORTED), nothing),
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
