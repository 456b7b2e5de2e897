"""Resizing: images of any size, to that which a view is cut out of.

The names of the modes are those of OpenCLIP.
"""

import tensorflow as tf

RESIZE_MODES = ("shortest", "longest", "squash")


def resize_shortest(images: tf.Tensor, side: int) -> tf.Tensor:
    """Resizes images so that the shorter side has a given length.

    The longer side is rounded down, as torchvision does it.

    Args:
        images: (H, W, C) or (B, H, W, C).
        side: In pixels.
    """
    height, width = images.shape[-3:-1]
    if None not in (height, width) and min(height, width) == side:
        return images
    shape = tf.shape(images)[-3:-1]
    return _unless_so(images, shape, shape * side // tf.reduce_min(shape))


def resize_longest(images: tf.Tensor, frame: tuple[int, int]) -> tf.Tensor:
    """Resizes images so that they just fit into a frame, and pads them.

    The aspect ratio is kept. The side that does not fill the frame is
    rounded to whole pixels, at least one, as Pillow does it, and what is
    missing of the frame is black: half of it before and half of it, with
    the odd pixel, after the image.

    Args:
        images: (H, W, C) or (B, H, W, C).
        frame: (height, width), in pixels.

    Returns:
        (..., *frame, C).
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
    """Resizes images to a frame, whatever their aspect ratio.

    Args:
        images: (H, W, C) or (B, H, W, C).
        frame: (height, width), in pixels.

    Returns:
        (..., *frame, C).
    """
    resized = _unless_so(images, tf.shape(images)[-3:-1], tf.constant(frame))
    return _framed(resized, images, frame)


def resize(images: tf.Tensor, size: tf.Tensor | tuple[int, int]) -> tf.Tensor:
    """Images of another size, of their type, in whole gray levels.

    Bilinear with antialiasing, as in Pillow.
    """
    resized = tf.image.resize(images, size, antialias=True)
    return tf.cast(tf.round(resized), images.dtype)


def _unless_so(
    images: tf.Tensor, shape: tf.Tensor, size: tf.Tensor
) -> tf.Tensor:
    """Images of another size, or as they are if they have it already."""
    return tf.cond(
        tf.reduce_all(shape == size),
        lambda: images,
        lambda: resize(images, size),
    )


def _framed(
    resized: tf.Tensor, images: tf.Tensor, frame: tuple[int, int]
) -> tf.Tensor:
    """The same, with the shape that is known."""
    *batch, _, _, channels = images.shape
    return tf.ensure_shape(resized, (*batch, *frame, channels))
