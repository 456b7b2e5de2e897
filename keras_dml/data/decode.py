"""Image files to pixels: in Python, and in a TensorFlow graph."""

import os

import numpy as np
import tensorflow as tf

from keras_dml.data.imageset import Pixels

_JPEG = b"\xff\xd8\xff"

# How files start that TensorFlow decodes as Pillow does. It would read a
# BMP's palette indices as grays.
_NATIVE = (_JPEG, b"\x89PNG", b"GIF8")


def read_image(path: str | os.PathLike[str]) -> Pixels:
    """Decodes an image file with Pillow, whatever its format.

    Transparency is dropped, 16-bit samples keep their upper 8 bits, CMYK
    becomes RGB, and of an animation the first frame is taken. An EXIF
    orientation is not applied, as TensorFlow does not either.

    Returns:
        Pixels, (H, W, 1) for a gray image and (H, W, 3) otherwise.

    Raises:
        ValueError: If the file cannot be decoded; it is named.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.mode.startswith("I"):
                samples = np.asarray(image)
                return (samples >> 8).clip(0, 255).astype("uint8")[..., None]
            gray = image.mode in ("1", "L", "LA")
            pixels = np.asarray(image.convert("L" if gray else "RGB"))
    # Whatever a decoder stumbles over, the file is what is wrong.
    except Exception as error:
        raise ValueError(
            f"The image file {os.fspath(path)!r} cannot be decoded: "
            f"{type(error).__name__}: {error}"
        ) from error
    return pixels[..., None] if gray else pixels


def decode_contents(contents: tf.Tensor) -> tf.Tensor:
    """Decodes a JPEG, PNG or GIF file's contents, in any graph.

    Pixels are those of Pillow, to the last bit. For JPEG that takes the
    accurate cosine transform, where TensorFlow's default is off by up to
    nine gray levels.

    Args:
        contents: A scalar string.

    Returns:
        RGB pixels, (H, W, 3) uint8; a gray image has three equal channels.
        Of an animation the first frame.
    """
    pixels = tf.cond(
        _starts_with(contents, _JPEG),
        lambda: tf.io.decode_jpeg(
            contents, channels=3, dct_method="INTEGER_ACCURATE"
        ),
        lambda: tf.io.decode_image(
            contents, channels=3, expand_animations=False
        ),
    )
    return tf.ensure_shape(pixels, (None, None, 3))


def decode_file(path: tf.Tensor) -> tf.Tensor:
    """Decodes an image file in a tf.data graph, as `read_image` does.

    Args:
        path: A scalar string.

    Returns:
        RGB pixels, (H, W, 3) uint8; a gray image has three equal channels.
    """
    contents = tf.io.read_file(path)
    is_native = [_starts_with(contents, start) for start in _NATIVE]
    pixels = tf.cond(
        tf.reduce_any(is_native),
        lambda: decode_contents(contents),
        lambda: tf.numpy_function(_read_rgb, [path], tf.uint8),
    )
    return tf.ensure_shape(pixels, (None, None, 3))


def _starts_with(contents: tf.Tensor, start: bytes) -> tf.Tensor:
    return tf.strings.substr(contents, 0, len(start)) == start


def _read_rgb(path: bytes) -> Pixels:
    pixels = read_image(os.fsdecode(path))
    return np.broadcast_to(pixels, (*pixels.shape[:2], 3)).copy()
