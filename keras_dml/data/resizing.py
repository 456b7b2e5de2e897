"""Resizing and cropping: which pixels of an image a view shows."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

from keras_dml.utils.tensorflow import tf

ResizeMode: TypeAlias = Literal["shortest", "longest", "squash"]

# Number of random windows before the center is used, as in torchvision.
TRIES = 10

Images: TypeAlias = Any
"""A tensor (..., H, W, C); or one image that is not decoded yet, `Encoded`."""


def sides_of(images: Images) -> tf.Tensor:
    if tf.is_tensor(images):
        return tf.shape(images)[-3:-1]
    return images.sides


def resize_shortest(images: Images, side: int) -> tf.Tensor:
    """Resizes images (..., H, W, C) so that the shorter side is `side`."""
    if tf.is_tensor(images):
        height, width = images.shape[-3:-1]
        if None not in (height, width) and min(height, width) == side:
            return images
    sides = sides_of(images)
    # The longer side is rounded down, as in torchvision.
    return resize(images, sides * side // tf.reduce_min(sides))


def resize_longest(images: Images, frame: tuple[int, int]) -> tf.Tensor:
    """Resizes images (..., H, W, C) to fit into a frame, and pads them.

    The aspect ratio is kept; the side that does not fill the frame is rounded
    to whole pixels, at least one, as in Pillow. Half of the black padding is
    before and half of it after the image, with the odd pixel after it.
    """
    # This order of operations, in float64, rounds halves as Pillow does.
    sides = tf.cast(sides_of(images), tf.float64)
    filled = tf.round(sides / sides[::-1] * frame[::-1])
    fits = tf.cast(tf.maximum(tf.minimum(filled, frame), 1), tf.int32)
    resized = resize(images, fits)
    before = (frame - fits) // 2
    margins = tf.stack([before, frame - fits - before], axis=1)
    batch_rank = len(resized.shape) - 3
    padded = tf.pad(resized, tf.pad(margins, [[batch_rank, 1], [0, 0]]))
    return _set_frame(padded, resized, frame)


def squash(images: Images, frame: tuple[int, int]) -> tf.Tensor:
    """Resizes images (..., H, W, C) to a frame, whatever their aspect ratio."""
    resized = resize(images, tf.constant(frame))
    return _set_frame(resized, resized, frame)


def resize(images: Images, size: tf.Tensor | tuple[int, int]) -> tf.Tensor:
    """Images of another size, with the same type, in whole gray levels.

    The interpolation is bilinear with antialiasing, as in Pillow. Images that
    have the size already are unchanged.
    """
    if not tf.is_tensor(images):
        return images.resize(size)

    def interpolate() -> tf.Tensor:
        pixels = tf.image.resize(images, size, antialias=True)
        return tf.cast(tf.round(pixels), images.dtype)

    has_size = tf.reduce_all(sides_of(images) == size)
    return tf.cond(has_size, lambda: images, interpolate)


def resize_window(
    image: tf.Tensor, size: tf.Tensor, corner: tf.Tensor, extent: tf.Tensor
) -> tf.Tensor:
    """`resize` of a window of one image, which may begin and end within pixels.

    Corner (top, left) and extent (height, width) of the window are float32;
    the corner is whole numbers if the window has the size already.
    """
    # Pixels around the window have no effect.
    first = tf.floor(corner)
    whole = tf.math.ceil(corner + extent) - first
    pixels = window(image, tf.cast(first, tf.int32), tf.cast(whole, tf.int32))
    factor = tf.cast(size, tf.float32) / extent

    def interpolate() -> tf.Tensor:
        resized = tf.raw_ops.ScaleAndTranslate(
            images=pixels[None],
            size=size,
            scale=factor,
            translation=(first - corner) * factor,
            kernel_type="triangle",
            antialias=True,
        )
        return tf.cast(tf.round(resized[0]), image.dtype)

    return tf.cond(tf.reduce_all(factor == 1), lambda: pixels, interpolate)


def window(image: tf.Tensor, corner: tf.Tensor, extent: tf.Tensor) -> tf.Tensor:
    (y1, x1), (y2, x2) = map(tf.unstack, (corner, corner + extent))
    return image[y1:y2, x1:x2]


def _set_frame(
    resized: tf.Tensor, images: tf.Tensor, frame: tuple[int, int]
) -> tf.Tensor:
    *batch, _, _, channels = images.shape
    return tf.ensure_shape(resized, (*batch, *frame, channels))


def to_channels(images: tf.Tensor, channels: int) -> tf.Tensor:
    """Gray (..., 1) to RGB (..., 3) or the reverse, where necessary.

    The type is kept, and gray levels become integers.
    """
    image_channels = images.shape[-1]
    if image_channels not in (1, 3):
        raise ValueError(
            "`images` of View must have 1 or 3 channels, known statically. "
            f"Received: images of shape {images.shape}."
        )
    if image_channels == channels:
        return images
    if channels == 3:
        return tf.repeat(images, 3, axis=-1)
    red, green, blue = tf.split(tf.cast(images, tf.float32), 3, axis=-1)
    # In this form an image with three equal channels keeps them exactly.
    gray = green + 0.299 * (red - green) + 0.114 * (blue - green)
    return tf.cast(tf.round(gray), images.dtype)


def position(draw: tf.Tensor, room: tf.Tensor) -> tf.Tensor:
    """An integer from 0 to `room`, from a draw uniform in [0, 1)."""
    offset = tf.cast(draw * tf.cast(room + 1, tf.float32), tf.int32)
    return tf.minimum(offset, room)


def cut_window(
    image: tf.Tensor, draws: tf.Tensor, size: tuple[int, int]
) -> tf.Tensor:
    """`cut_windows` for one image, not mirrored; faster than a batch."""
    corner = position(draws, tf.shape(image)[:2] - size)
    return tf.slice(image, tf.pad(corner, [[0, 1]]), (*size, image.shape[2]))


def cut_windows(
    images: tf.Tensor,
    draws: tf.Tensor,
    flip: tf.Tensor,
    size: tuple[int, int],
) -> tf.Tensor:
    """One window of a size from each image, (B, H, W, C), mirrored on `flip`.

    The draws, (B, 2) and uniform in [0, 1), determine its position.
    """
    room = tf.shape(images)[1:3] - size
    corner = position(draws, room)
    rows = corner[:, :1] + tf.range(size[0])
    columns = tf.range(size[1])
    columns = tf.where(flip[:, None], columns[::-1], columns)
    columns = corner[:, 1:] + columns
    cut = tf.gather(images, rows, axis=1, batch_dims=1)
    return tf.gather(cut, columns, axis=2, batch_dims=1)


def random_area(
    sides: tf.Tensor,
    draws: tf.Tensor,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> tuple[tf.Tensor, tf.Tensor]:
    """A window of random area and aspect ratio, as in torchvision.

    Area, as a fraction in `scale`, and the logarithm of the aspect ratio, width
    / height in `ratio`, are uniform. The first of ten tries that fits into the
    image is used; if none does, the window is the largest centered one with a
    permitted aspect ratio. Sides are (2,) int32, and draws (2 + 2 · `TRIES`,),
    uniform in [0, 1).

    Returns:
        Top and left, and height and width, (2,) int32 each.

    Reference:
        Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, Sec. 6.
    """
    extent = tf.cast(sides, tf.float32)
    areas, ratios = tf.split(draws[2:], 2)
    area = tf.reduce_prod(extent) * (scale[0] + areas * (scale[1] - scale[0]))
    low, high = map(math.log, ratio)
    aspect = tf.exp(low + ratios * (high - low))
    tries = tf.stack([tf.sqrt(area / aspect), tf.sqrt(area * aspect)], -1)
    tries = tf.cast(tf.round(tries), tf.int32)
    fits = tf.reduce_all((tries > 0) & (tries <= sides), axis=-1)
    any_fits = tf.reduce_any(fits)
    first = tf.argmax(fits)
    height, width = tf.unstack(extent)
    high = tf.minimum(height, width / ratio[0])
    wide = tf.minimum(width, height * ratio[1])
    largest = tf.maximum(tf.round(tf.stack([high, wide])), 1)
    size = tf.where(any_fits, tries[first], tf.cast(largest, tf.int32))
    room = sides - size
    return tf.where(any_fits, position(draws[:2], room), room // 2), size
