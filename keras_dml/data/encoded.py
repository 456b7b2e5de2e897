"""Image files in a TensorFlow graph, decoded as far as they are needed."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from keras_dml.data.decode import (
    FLIPPED,
    JPEG,
    MAX_PIXELS,
    MAX_SIDE_RATIO,
    MIRRORED,
    PNG,
    TRANSPOSED,
    exif_of,
    exif_orientation,
    open_checked,
    read_image,
)
from keras_dml.data.resizing import resize_window, to_channels, window
from keras_dml.data.validation import Pixels
from keras_dml.utils.tensorflow import tf

_SCALES = (1, 2, 4, 8)
"""Factors by which a JPEG file can be reduced while it is decoded."""

_MIN_OVERSAMPLING = 2
"""Smallest ratio of the sides of a reduced image to those of the result."""

_MARGIN = (0, 2)
"""Rows and columns that are decoded around a window: its colors, which JPEG
may have at half the width, are interpolated from their neighbors."""

DCT = "INTEGER_ACCURATE"
"""Pillow's method; TensorFlow's default differs by up to nine gray levels."""

# JPEG files without EXIF start with a JFIF segment, in which some bytes may be
# anything, and then a table, which EXIF would have to precede.
_PLAIN_START = np.frombuffer(
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(9) + b"\xff\xdb", np.uint8
)
_PLAIN_MASK = np.repeat(np.array([255, 0, 255], np.uint8), (11, 7, 4))


class Encoded:
    """One image file in a graph, decoded as far as it is needed; see `of_file`.

    Of a JPEG file, only a window is decoded; if the image is `scalable`, at a
    half, a quarter or an eighth of its size, if that is at least twice as high
    and wide as the result. Other files are decoded whole.

    The graph raises an error if a file cannot be decoded, the box is outside
    the image, or longer than `MAX_SIDE_RATIO` allows.

    `contents` are bytes, () string. `orientation` returns the EXIF orientation,
    () int32, of a JPEG file, and `decode_other` the upright RGB pixels of other
    files. A box is the part that counts, as in `ImageSet`; its height and
    width, or those of the upright image, are `sides`, (2,) int32.
    """

    def __init__(
        self,
        contents: tf.Tensor,
        orientation: Callable[[], tf.Tensor],
        decode_other: Callable[[], tf.Tensor],
        box: tf.Tensor | None = None,
    ) -> None:
        self._channels = 3
        self._scales: tuple[int, ...] = _SCALES[:1]
        self._contents = contents
        header = _header(contents, orientation)
        self._orientation = header[2]
        self._whole = tf.cond(
            self._is_jpeg, lambda: tf.zeros((0, 0, 3), tf.uint8), decode_other
        )
        self._stored = tf.maximum(header[:2], tf.shape(self._whole)[:2])
        is_turned = _turns(self._orientation)[0]
        sides = tf.where(is_turned, self._stored[::-1], self._stored)
        self._upright = sides
        self._corner = tf.zeros(2, tf.int32)
        if box is not None:
            x1, y1, x2, y2 = tf.unstack(tf.cast(box, tf.int32))
            self._corner = tf.stack([y1, x1])
            sides = tf.minimum([y2, x2], sides) - self._corner
        shortest, longest = tf.reduce_min(sides), tf.reduce_max(sides)
        room = MAX_SIDE_RATIO * shortest - longest
        is_usable = tf.debugging.assert_positive(tf.minimum(room + 1, shortest))
        with tf.control_dependencies([is_usable]):
            self.sides = tf.identity(sides)

    def in_channels(self, channels: int) -> Encoded:
        other = copy.copy(self)
        other._channels = channels
        return other

    def scalable(self) -> Encoded:
        """The same image, which need not be decoded at its full size."""
        other = copy.copy(self)
        other._scales = _SCALES
        return other

    def pixels(self) -> tf.Tensor:
        """All pixels, (H, W, C) uint8."""
        return self.resize(self.sides)

    def resize(self, size: tf.Tensor | tuple[int, int]) -> tf.Tensor:
        """The image in another size, (*size, C) uint8; see `resize`."""
        corners = tf.zeros((1, 2), tf.int32)
        return self.windows(size, corners, self.sides[None])[0]

    def windows(
        self,
        size: tf.Tensor | tuple[int, int],
        corners: tf.Tensor,
        extents: tf.Tensor,
    ) -> tf.Tensor:
        """Resized windows of an image that is decoded once, (N, *size, C).

        Corners (top, left) and extents (height, width) are (N, 2) int32, N
        static.
        """
        size = tf.convert_to_tensor(size)
        # Pixels are turned last, when they are few.
        turned, mirrored, flipped = _turns(self._orientation)
        corners += self._corner
        opposite = self._upright - corners - extents
        corners = tf.where([flipped, mirrored], opposite, corners)
        size, corners, extents = (
            tf.where(turned, pairs[..., ::-1], pairs)
            for pairs in (size, corners, extents)
        )
        windows = upright(
            self._stored_windows(size, corners, extents), self._orientation
        )
        return tf.ensure_shape(
            windows, (extents.shape[0], None, None, self._channels)
        )

    @property
    def _is_jpeg(self) -> tf.Tensor:
        return self._orientation > 0

    def _stored_windows(
        self, size: tf.Tensor, corners: tf.Tensor, extents: tf.Tensor
    ) -> tf.Tensor:
        scales = tf.constant(self._scales)
        room = tf.reduce_min(extents // (_MIN_OVERSAMPLING * size))
        rank = tf.reduce_sum(tf.cast(room >= scales[1:], tf.int32))
        rank = tf.where(self._is_jpeg, rank, 0)
        scale = scales[rank]
        # The part that is decoded at that scale is rounded outwards.
        start = tf.reduce_min(corners, 0) // scale - _MARGIN
        stop = -(-tf.reduce_max(corners + extents, 0) // scale) + _MARGIN
        start = tf.maximum(start, 0)
        stop = tf.minimum(stop, -(-self._stored // scale))

        def decode(scale: int) -> tf.Tensor:
            return tf.io.decode_and_crop_jpeg(
                self._contents,
                tf.concat([start, stop - start], 0),
                channels=3,
                ratio=scale,
                dct_method=DCT,
            )

        branches = [partial(decode, x) for x in self._scales]
        part = tf.cond(
            self._is_jpeg,
            lambda: tf.switch_case(rank, branches),
            lambda: window(self._whole, start, stop - start),
        )
        part = to_channels(part, self._channels)
        scale, start = (tf.cast(x, tf.float32) for x in (scale, start))
        corners, extents = (
            tf.unstack(tf.cast(pairs, tf.float32) / scale)
            for pairs in (corners, extents)
        )
        resized = [
            resize_window(part, size, corner - start, extent)
            for corner, extent in zip(corners, extents, strict=True)
        ]
        return tf.stack(resized)


def of_file(path: tf.Tensor, box: tf.Tensor | None = None) -> Encoded:
    """The image in a file, in a tf.data graph; its pixels are `read_image`'s.

    Pillow decodes all files but JPEG, and PNG without EXIF, of which
    TensorFlow makes the same pixels: every operation adds time to the start of
    an epoch, even in branches that are not taken.
    """
    contents = tf.io.read_file(path)

    def orientation(path: Any) -> Any:
        with open_checked(_as_path(path)) as image:
            return np.int32(exif_orientation(exif_of(image)))

    return Encoded(
        contents,
        lambda: tf.numpy_function(orientation, [path], tf.int32),
        lambda: _decode_other(contents, path),
        box,
    )


def _turns(orientation: tf.Tensor) -> list[tf.Tensor]:
    """Whether pixels are transposed, mirrored and flipped to be upright."""
    kinds = (TRANSPOSED, MIRRORED, FLIPPED)
    return [tf.reduce_any(orientation == tf.constant(x)) for x in kinds]


def upright(pixels: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Turns and mirrors pixels, (..., H, W, C), from an EXIF orientation."""

    def turn() -> tf.Tensor:
        is_transposed, is_mirrored, is_flipped = _turns(orientation)
        axes = [*range(len(pixels.shape))]
        *batch_axes, height, width, channels = axes
        swapped = [*batch_axes, width, height, channels]
        moved = tf.transpose(pixels, tf.where(is_transposed, swapped, axes))
        flips = tf.stack([is_flipped, is_mirrored])
        return tf.reverse(moved, tf.boolean_mask(axes[-3:-1], flips))

    # Turning copies the pixels even if they are upright.
    return tf.cond(orientation > 1, turn, lambda: pixels)


def _header(
    contents: tf.Tensor, orientation: Callable[[], tf.Tensor]
) -> tf.Tensor:
    """Height and width as stored, and orientation, of a JPEG file; or zeros."""

    def of_jpeg() -> tf.Tensor:
        sides = tf.io.extract_jpeg_shape(contents)[:2]
        turn = turn_of_jpeg(contents, orientation)
        area = tf.reduce_prod(tf.cast(sides, "int64"))
        with tf.control_dependencies(
            [tf.debugging.assert_less_equal(area, np.int64(MAX_PIXELS))]
        ):
            return tf.concat([sides, [turn]], 0)

    return tf.cond(
        starts_with(contents, JPEG), of_jpeg, lambda: tf.zeros(3, tf.int32)
    )


def turn_of_jpeg(
    contents: tf.Tensor, orientation: Callable[[], tf.Tensor]
) -> tf.Tensor:
    """The EXIF orientation, () int32; 1 without EXIF, as in most files."""
    start = tf.io.decode_raw(contents, tf.uint8, fixed_length=len(_PLAIN_START))
    is_plain = tf.reduce_all(start & _PLAIN_MASK == _PLAIN_START)
    return tf.cond(is_plain, lambda: tf.constant(1), orientation)


def _decode_other(contents: tf.Tensor, path: tf.Tensor) -> tf.Tensor:
    def read_rgb(path: Any) -> Pixels:
        pixels = read_image(_as_path(path))
        return np.broadcast_to(pixels, (*pixels.shape[:2], 3)).copy()

    def decode_png() -> tf.Tensor:
        # TensorFlow has a limit three times as high.
        is_small = tf.reduce_prod(png_sides(contents)) <= MAX_PIXELS
        return tf.io.decode_png(tf.where(is_small, contents, ""), channels=3)

    pixels = tf.cond(
        starts_with(contents, PNG) & ~may_have_exif(contents),
        decode_png,
        lambda: tf.numpy_function(read_rgb, [path], tf.uint8),
    )
    return tf.ensure_shape(pixels, (None, None, 3))


def may_have_exif(contents: tf.Tensor) -> tf.Tensor:
    """Whether the name of a PNG's EXIF block occurs, perhaps by chance."""
    without = tf.strings.regex_replace(
        contents, r"eXIf", "", replace_global=False
    )
    return tf.strings.length(without) < tf.strings.length(contents)


def png_sides(contents: tf.Tensor) -> tf.Tensor:
    """Width and height in the header of a PNG file, (2,) int64."""
    both = tf.strings.substr(contents, 16, 8)
    numbers = tf.io.decode_raw(both, tf.int32, little_endian=False)
    # This fails if the file ends too early.
    return tf.cast(tf.ensure_shape(numbers, (2,)), "int64")


def starts_with(contents: tf.Tensor, start: bytes) -> tf.Tensor:
    return tf.strings.substr(contents, 0, len(start)) == start


def _as_path(path: Any) -> str:
    # A graph passes bytes, and other callers an array of them.
    return os.fsdecode(np.asarray(path).item())
