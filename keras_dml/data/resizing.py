"""Resizing and cropping: which pixels of an image a view shows."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

from keras_dml.utils.tensorflow import tf

ResizeMode: TypeAlias = Literal["shortest", "longest", "squash"]
RESIZE_MODES = get_args(ResizeMode)

# Tries to find a window, before the center is taken; as in torchvision.
TRIES = 10


def resize_shortest(images: tf.Tensor, side: int) -> tf.Tensor:
    """Resizes images (..., H, W, C) so that the shorter side is `side`.

    The longer side is rounded down, as in torchvision.
    """
    height, width = images.shape[-3:-1]
    if None not in (height, width) and min(height, width) == side:
        return images
    shape = tf.shape(images)[-3:-1]
    return _unless_so(images, shape, shape * side // tf.reduce_min(shape))


def resize_longest(images: tf.Tensor, frame: tuple[int, int]) -> tf.Tensor:
    """Resizes images (..., H, W, C) to fit into a frame, and pads them.

    The aspect ratio is kept. The side that does not fill the frame is rounded
    to whole pixels, at least one, as in Pillow. The rest of the frame is
    black: half of it before and half of it after the image, with the odd pixel
    after it.
    """
    shape = tf.shape(images)[-3:-1]
    # In this order, and with these digits, halves are rounded as in Pillow.
    sides = tf.cast(shape, tf.float64)
    filled = tf.round(sides / sides[::-1] * frame[::-1])
    fits = tf.cast(tf.maximum(tf.minimum(filled, frame), 1), tf.int32)
    images = _unless_so(images, shape, fits)
    before = (frame - fits) // 2
    margins = tf.stack([before, frame - fits - before], axis=1)
    others = len(images.shape) - 3
    padded = tf.pad(images, tf.pad(margins, [[others, 1], [0, 0]]))
    return _framed(padded, images, frame)


def squash(images: tf.Tensor, frame: tuple[int, int]) -> tf.Tensor:
    """Resizes images (..., H, W, C) to a frame, whatever their aspect ratio."""
    resized = _unless_so(images, tf.shape(images)[-3:-1], tf.constant(frame))
    return _framed(resized, images, frame)


def resize(images: tf.Tensor, size: tf.Tensor | tuple[int, int]) -> tf.Tensor:
    """Images of another size, with the same type, in whole gray levels.

    The interpolation is bilinear with antialiasing, as in Pillow.
    """
    resized = tf.image.resize(images, size, antialias=True)
    return tf.cast(tf.round(resized), images.dtype)


def _unless_so(
    images: tf.Tensor, shape: tf.Tensor, size: tf.Tensor
) -> tf.Tensor:
    """Images of another size, unchanged if they have it already."""
    return tf.cond(
        tf.reduce_all(shape == size),
        lambda: images,
        lambda: resize(images, size),
    )


def _framed(
    resized: tf.Tensor, images: tf.Tensor, frame: tuple[int, int]
) -> tf.Tensor:
    """The same images, with their known shape."""
    *batch, _, _, channels = images.shape
    return tf.ensure_shape(resized, (*batch, *frame, channels))


def position(draw: tf.Tensor, room: tf.Tensor) -> tf.Tensor:
    """An integer from 0 to `room`, from a draw uniform in [0, 1)."""
    place = tf.cast(draw * tf.cast(room + 1, tf.float32), tf.int32)
    return tf.minimum(place, room)


def cut_window(
    image: tf.Tensor, draws: tf.Tensor, size: tuple[int, int]
) -> tf.Tensor:
    """`cut_windows` for one image, not mirrored; faster than a batch of
    one."""
    corner = position(draws, tf.shape(image)[:2] - size)
    return tf.slice(image, tf.pad(corner, [[0, 1]]), (*size, image.shape[2]))


def cut_windows(
    images: tf.Tensor,
    draws: tf.Tensor,
    flip: tf.Tensor,
    size: tuple[int, int],
) -> tf.Tensor:
    """One window of a size from each image, (B, H, W, C), mirrored on `flip`.

    The draws, (B, 2) and uniform in [0, 1), determine its position from the
    top left.
    """
    room = tf.shape(images)[1:3] - size
    corner = position(draws, room)
    rows = corner[:, :1] + tf.range(size[0])
    columns = tf.range(size[1])
    columns = tf.where(flip[:, None], columns[::-1], columns)
    columns = corner[:, 1:] + columns
    cut = tf.gather(images, rows, axis=1, batch_dims=1)
    return tf.gather(cut, columns, axis=2, batch_dims=1)


def cut_random_area(
    image: tf.Tensor,
    draws: tf.Tensor,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> tf.Tensor:
    """A window of random area and aspect ratio, as in torchvision.

    Area and the logarithm of the aspect ratio are uniform. The first of ten
    tries that fits into the image is used; if none does, the window is the
    largest centered one with a permitted aspect ratio.

    Args:
        image: (H, W, C).
        draws: (2 + 2 · `TRIES`,), uniform in [0, 1).
        scale: Smallest and largest area, as fractions of the image area.
        ratio: Smallest and largest width / height.

    Reference:
        Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, Sec. 6.
    """
    shape = tf.shape(image)[:2]
    extent = tf.cast(shape, tf.float32)
    areas, ratios = tf.split(draws[2:], 2)
    area = tf.reduce_prod(extent) * (scale[0] + areas * (scale[1] - scale[0]))
    low, high = map(math.log, ratio)
    aspect = tf.exp(low + ratios * (high - low))
    tries = tf.stack([tf.sqrt(area / aspect), tf.sqrt(area * aspect)], -1)
    tries = tf.cast(tf.round(tries), tf.int32)
    fits = tf.reduce_all((tries > 0) & (tries <= shape), axis=-1)
    found = tf.reduce_any(fits)
    first = tf.argmax(fits)
    size = tf.where(found, tries[first], _largest(extent, ratio))
    room = shape - size
    corner = tf.where(found, position(draws[:2], room), room // 2)
    (top, left), (bottom, right) = map(tf.unstack, (corner, corner + size))
    return image[top:bottom, left:right]


def _largest(extent: tf.Tensor, ratio: tuple[float, float]) -> tf.Tensor:
    height, width = tf.unstack(extent)
    high = tf.minimum(height, width / ratio[0])
    wide = tf.minimum(width, height * ratio[1])
    size = tf.round(tf.stack([high, wide]))
    return tf.cast(tf.maximum(size, 1), tf.int32)
