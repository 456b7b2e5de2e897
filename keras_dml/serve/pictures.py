"""Pictures: the memory that decoding takes, and the views of a model.

A picture of a few kilobytes may take gigabytes once it is decoded, depending on
the kind of file. So every kind is charged for its memory, to a budget of pixels
that all requests share.
"""

import io
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
from PIL.Image import Image

from keras_dml.data import View
from keras_dml.data.decode import (
    MAX_SIDE_RATIO,
    ORIENTATION,
    ImageFile,
    exif_of,
    exif_orientation,
    open_checked,
    open_image,
    pixels_of,
    upright,
)
from keras_dml.data.resizing import to_channels
from keras_dml.data.validation import Pixels
from keras_dml.serve.errors import RequestError
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import FloatArray

MAX_WHOLE_PIXELS = 2**24
"""Pixels up to which a model sees a picture exactly as in an index.

Larger pictures are reduced when they are decoded.
"""

_REDUCED_PIXELS = 2**21
"""Maximum number of pixels of a reduced picture."""

_PIXEL_BYTES = 5
"""Bytes that count as one pixel: RGB in Pillow takes 4, and its copy 1."""

_BOMBS = PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning

_STRIP_PIXELS = 2**20
"""Pixels that are converted together."""

_MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
"""Bytes of a pixel in Pillow by mode; 4 in all other modes."""

_DECODER_BYTES = {
    "JPEG": 0, "MPO": 0, "PNG": 0, "BMP": 0, "DIB": 0, "PPM": 0, "TGA": 0,
    "GIF": 1, "TIFF": 4, "WEBP": 13, "AVIF": 10, "HEIF": 16, "JPEG2000": 16,
}  # fmt: skip
"""Bytes per pixel that a decoder takes in addition to Pillow, by format.

Those of WebP and AVIF hold several whole frames, that of JPEG 2000 samples of
32 bits. Formats that contain other files, such as ICO, are missing, because
their header does not reveal their size.
"""


class NoPicture(RequestError):
    """A file without a header of an image file that can be read."""

    def __init__(self, data: bytes) -> None:
        kinds = ", ".join(sorted(_DECODER_BYTES))
        super().__init__(
            f"The picture must be an image file of one of these kinds: {kinds}."
            f" Received: {len(data):,} bytes that begin with {data[:8]!r}."
        )


def weigh(data: bytes, max_pixels: int) -> int:
    """The memory that decoding an image file takes, in pixels of plain RGB.

    Only the header is read. Pictures that are too long and thin, or exceed
    `max_pixels` by their pixels or memory, raise an error.
    """
    try:
        with open_image(io.BytesIO(data)) as image:
            return weigh_image(image, max_pixels, data)
    except ImportError as error:  # HEIC needs a package.
        raise RequestError(str(error)) from error
    except RequestError:
        raise
    except _BOMBS:
        return _check_pixels(math.inf, max_pixels)
    # Untrusted headers may make Pillow raise any error.
    except Exception as error:
        raise NoPicture(data) from error


def weigh_image(
    image: Image, max_pixels: int, data: bytes = b"", is_whole: bool = False
) -> int:
    """Weighs an opened file, of which `data` may be the content.

    With `is_whole`, a picture of any size is decoded whole.
    """
    if 0 in image.size or image.format not in _DECODER_BYTES:
        raise NoPicture(data)
    _check_sides(*image.size)
    pixels = _check_pixels(math.prod(image.size), max_pixels)
    weight = -(-int(_bytes_of(image, data, is_whole)) // _PIXEL_BYTES)
    if pixels <= MAX_WHOLE_PIXELS and not _DECODER_BYTES[image.format]:
        return min(weight, max_pixels)  # A small limit counts pixels only.
    if weight > max_pixels:
        raise RequestError(
            f"A picture must not take more memory than {max_pixels:,} pixels "
            f"of PNG. Received: {pixels:,} pixels of {image.format}, which "
            f"take as much as {weight:,}. Reduce its size, or start the server "
            "with a larger --max-pixels.",
            413,
        )
    return weight


def _bytes_of(image: Image, data: bytes, is_whole: bool) -> float:
    """The memory that decoding an opened file takes, in bytes."""
    pixels, depth = math.prod(image.size), _MODE_BYTES.get(image.mode, 4)
    # A picture of another mode is converted, and all become arrays.
    whole = depth + (min(depth, 3) if image.mode in ("L", "RGB") else 7)
    factor = 1 if is_whole else _factor(image)
    if image.format in ("JPEG", "MPO"):
        scale = max(x for x in (1, 2, 4, 8) if x <= factor)
        coefficients = 0.0
        # The decoder stores all of them unless there is a single scan.
        if "progressive" in image.info or data.count(b"\xff\xda") > 1:
            sampling = [h * v for _, h, v, _ in image.layer]  # type: ignore[attr-defined]
            coefficients = 2 * pixels * sum(sampling) / max(sampling)
        return coefficients + pixels / scale**2 * whole
    decoder = _DECODER_BYTES[str(image.format)]
    if image.format == "TIFF":
        # Pillow makes a copy of a picture to rotate it.
        is_turned = image.tag_v2.get(ORIENTATION, 1) != 1  # type: ignore[attr-defined]
        decoder += depth * is_turned
    if factor > 1:
        return pixels * (decoder + depth + whole / factor**2)
    return pixels * (decoder + whole)


def _factor(image: Image) -> int:
    """The divisor of both sides when a picture is decoded."""
    pixels = math.prod(image.size)
    if pixels <= MAX_WHOLE_PIXELS or image.mode in ("I", "F"):
        return 1
    return math.ceil(math.sqrt(pixels / _REDUCED_PIXELS))


def read_picture(
    file: ImageFile, sides: tuple[int, int] | None = None
) -> Pixels:
    """Decodes an image file with Pillow as `read_image` does, or smaller.

    One of more than `MAX_WHOLE_PIXELS` is reduced before anything else; a JPEG
    file also to `sides`, a sufficient height and width.
    """
    with open_checked(file) as image:
        if image.format in ("JPEG", "MPO"):
            width, height = (x // _factor(image) for x in image.size)
            if sides is not None:
                height, width = map(min, (height, width), sides)
            image.draft(None, (width, height))
        factor = _factor(image)
        return pixels_of(image) if factor == 1 else _reduce(image, factor)


def _reduce(image: Image, factor: int) -> Pixels:
    """Means over squares of pixels, computed in strips of rows."""
    width, height = image.size
    rows = factor * max(_STRIP_PIXELS // width // factor, 1)
    strips = []
    for top in range(0, height, rows):
        strip = image.crop((0, top, width, min(top + rows, height)))
        # Only the whole picture is rotated, at the end.
        strip.info = {k: x for k, x in strip.info.items() if k != "exif"}
        pixels = pixels_of(strip)
        gray = pixels.shape[-1] == 1
        reduced = PIL.Image.fromarray(pixels[..., 0] if gray else pixels)
        strips.append(np.atleast_3d(np.asarray(reduced.reduce(factor))))
    return upright(np.concatenate(strips), exif_orientation(exif_of(image)))


class Viewer:
    """The view that a model has of pictures, computed without a float copy."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.shape = (*view.size, view.channels)
        self._apply = tf.function(view.apply, autograph=False)

    def see(self, data: bytes) -> FloatArray:
        """The view of an image file, (H, W, C) float32; or ValueError."""
        file, sides = io.BytesIO(data), None
        if self._view.fast:
            with open_checked(file) as image:
                size = np.array([image.size[::-1]])
            view_size = 2 * self._view.prepared_sizes(size)[0]
            sides = int(view_size[0]), int(view_size[1])
        pixels = read_picture(file, sides)
        if pixels.shape[-1] > self._view.channels:
            # Conversion to gray takes floats, so it is done in strips.
            rows = max(_STRIP_PIXELS // 4 // pixels.shape[1], 1)
            strips = [
                to_channels(tf.constant(pixels[top : top + rows]), 1).numpy()
                for top in range(0, len(pixels), rows)
            ]
            pixels = np.concatenate(strips)
        return self.see_pixels(pixels)

    def see_pixels(self, pixels: npt.NDArray[Any]) -> FloatArray:
        """The view of pixels, (H, W, C); or views of images of one size."""
        shape = (*[None] * (pixels.ndim - 1), pixels.shape[-1])
        function = self._apply.get_concrete_function(
            tf.TensorSpec(shape, pixels.dtype)
        )
        views: FloatArray = function(tf.constant(pixels)).numpy()
        return views


def weigh_arrays(shape: tuple[int, ...], max_pixels: int) -> int:
    """The weight of each of several images in JSON, (B, H, W, C)."""
    _check_sides(*shape[2:0:-1])
    # Images are float32: one copy, and two more while they are resized.
    return check_memory(12 * math.prod(shape[1:]), max_pixels)


def check_memory(size: int, max_pixels: int) -> int:
    """Converts bytes to pixels, which must not exceed `max_pixels`."""
    return _check_pixels(-(-size // _PIXEL_BYTES), max_pixels)


def _check_sides(width: int, height: int) -> None:
    short, long = sorted((width, height))
    if short < 1 or long > MAX_SIDE_RATIO * short:
        raise RequestError(
            "A picture must not be so long and thin that one side has more "
            f"than {MAX_SIDE_RATIO} times the pixels of the other. Received: "
            f"{width} × {height} pixels. Crop it."
        )


def _check_pixels(pixels: float, max_pixels: int) -> int:
    if pixels > max_pixels:
        count = "many more" if pixels == math.inf else f"{pixels:,}"
        raise RequestError(
            f"A picture must not have more than {max_pixels:,} pixels. "
            f"Received: {count}. Reduce its size, or start the server with a "
            "larger --max-pixels.",
            413,
        )
    return int(pixels)
