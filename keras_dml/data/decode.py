"""Image files to pixels: in Python, and in a TensorFlow graph."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_dml.data.fields import Pixels
from keras_dml.utils.types import Rows, Tensor

if TYPE_CHECKING:
    from PIL.Image import Image

_JPEG = b"\xff\xd8\xff"

# How other files start that TensorFlow decodes as Pillow does. It would read a
# BMP's palette indices as grays.
_NATIVE = (b"\x89PNG", b"GIF8")


def read_image(path: str | os.PathLike[str], box: Rows | None = None) -> Pixels:
    """Decodes an image file with Pillow, whatever its format.

    Transparency is dropped, 16-bit samples keep their upper 8 bits, CMYK
    becomes RGB, and of an animation the first frame is taken. An EXIF
    orientation is not applied, as TensorFlow does not either.

    Args:
        path: The file.
        box: The part that is wanted, as in `ImageSet`; by default all.

    Returns:
        Pixels, (H, W, 1) for a gray image and (H, W, 3) otherwise.

    Raises:
        ValueError: If the file cannot be decoded, or nothing of it is in
            the box; it is named.
    """
    with _opened(path) as image:
        is_gray = image.mode in ("1", "L", "LA")
        if image.mode.startswith("I"):
            samples = np.asarray(image)
            pixels = (samples >> 8).clip(0, 255).astype("uint8")
        else:
            pixels = np.asarray(image.convert("L" if is_gray else "RGB"))
        pixels = np.atleast_3d(pixels)
    if box is None:
        return pixels
    _size_inside(box, path, *pixels.shape[:2])
    return crop(pixels, box)


def image_size(
    path: str | os.PathLike[str], box: Rows | None = None
) -> tuple[int, int]:
    """Height and width of what `read_image` reads, by the head of the file.

    Raises:
        ValueError: As `read_image`, as far as the head tells.
    """
    with _opened(path) as image:
        width, height = image.size
    if box is None:
        return height, width
    return _size_inside(box, path, height, width)


def crop(image: Tensor, box: Tensor) -> Tensor:
    """The part of an image (H, W, C) in a box, NumPy or TensorFlow."""
    return image[box[1] : box[3], box[0] : box[2]]


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator["Image"]:
    """An image file; whatever fails while it is open is an error of it."""
    import PIL.Image

    try:
        with PIL.Image.open(path) as image:
            yield image
    except Exception as error:
        raise ValueError(
            f"The image file {os.fspath(path)!r} cannot be decoded: "
            f"{type(error).__name__}: {error}"
        ) from error


def _size_inside(
    box: Rows, path: str | os.PathLike[str], height: int, width: int
) -> tuple[int, int]:
    """Height and width of the part of an image that is in a box."""
    left, top, right, bottom = map(int, box)
    size = min(bottom, height) - top, min(right, width) - left
    if min(size) < 1:
        raise ValueError(
            "The box (left, top, right, bottom) "
            f"{(left, top, right, bottom)} is outside of the image file "
            f"{os.fspath(path)!r}, which is {width} pixels wide and {height} "
            "high."
        )
    return size


def decode_contents(contents: tf.Tensor) -> tf.Tensor:
    """Decodes a JPEG, PNG or GIF file's contents, in any graph.

    Pixels are those of Pillow, to the last bit. For JPEG that takes the
    accurate cosine transform, where TensorFlow's default is off by up to
    nine gray levels.

    Returns:
        RGB pixels, (H, W, 3) uint8; a gray image has three equal channels.
        Of an animation the first frame.
    """
    return _decode(contents, lambda: _decode_any(contents))


def decode_file(path: tf.Tensor, box: tf.Tensor | None = None) -> tf.Tensor:
    """Decodes an image file in a tf.data graph, as `read_image` does.

    What it returns is as of `decode_contents`. It is an error in the graph
    if the box is outside of the image.
    """
    contents = tf.io.read_file(path)

    def decode_other() -> tf.Tensor:
        return tf.cond(
            tf.reduce_any([_starts_with(contents, x) for x in _NATIVE]),
            lambda: _decode_any(contents),
            lambda: tf.numpy_function(_read_rgb, [path], tf.uint8),
        )

    pixels = _decode(contents, decode_other)
    if box is None:
        return pixels
    part = crop(pixels, box)
    with tf.control_dependencies([tf.debugging.assert_positive(tf.size(part))]):
        return tf.identity(part)


def _decode(
    contents: tf.Tensor, decode_other: Callable[[], tf.Tensor]
) -> tf.Tensor:
    """JPEG first, as every condition costs time, and most files are it."""
    pixels = tf.cond(
        _starts_with(contents, _JPEG),
        lambda: tf.io.decode_jpeg(
            contents, channels=3, dct_method="INTEGER_ACCURATE"
        ),
        decode_other,
    )
    return tf.ensure_shape(pixels, (None, None, 3))


def _decode_any(contents: tf.Tensor) -> tf.Tensor:
    return tf.io.decode_image(contents, channels=3, expand_animations=False)


def _starts_with(contents: tf.Tensor, start: bytes) -> tf.Tensor:
    return tf.strings.substr(contents, 0, len(start)) == start


def _read_rgb(path: bytes) -> Pixels:
    pixels = read_image(os.fsdecode(path))
    return np.broadcast_to(pixels, (*pixels.shape[:2], 3)).copy()
