"""Limits of pictures: by their headers, before anything is decoded."""

import io
import math
import struct

from keras_dml.data.decode import open_image

_PNG_START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_STARTS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"BM")


class NotAPicture(ValueError):
    """Bytes that do not look like an image file."""


class TooManyPixels(ValueError):
    """A picture that is too large to be decoded."""


def check_picture(data: bytes, most_pixels: int) -> None:
    """Checks the header of an image file; nothing of it is decoded.

    Args:
        data: The file.
        most_pixels: Pixels that it may have.

    Raises:
        NotAPicture: If it has no header of an image file that can be read.
        TooManyPixels: If it is larger.
    """
    pixels = _pixels(data)
    if pixels is None:
        raise NotAPicture(
            "The picture must be an image file, such as JPEG, PNG or WebP. "
            f"Received: {_what(data)}."
        )
    _check(pixels, most_pixels)


def check_any_pictures(values: list[bytes], most_pixels: int) -> None:
    """Checks those of a request's values that are image files.

    Args:
        values: Image files, or anything else.
        most_pixels: Pixels that each may have; all together may have eight
            times as many.

    Raises:
        TooManyPixels: If there are more.
    """
    total = 0.0
    for value in values:
        if not value.startswith(_STARTS):
            continue
        if pixels := _png_pixels(value) or _pixels(value):
            _check(pixels, most_pixels)
            total += pixels
    if total > 8 * most_pixels:
        raise TooManyPixels(
            "The pictures in a request must not have more than "
            f"{8 * most_pixels:,} pixels in total. Received: {total:,.0f}. "
            "Send them in several requests."
        )


def _check(pixels: float, most_pixels: int) -> None:
    if pixels > most_pixels:
        count = "many more" if pixels == math.inf else f"{pixels:,}"
        raise TooManyPixels(
            f"A picture must not have more than {most_pixels:,} pixels. "
            f"Received: {count}. Reduce its size, or start the server with a "
            "larger --max-pixels."
        )


def _pixels(data: bytes) -> float | None:
    """Pixels that the header of an image file claims; None if it has none.

    Infinity where Pillow does not open it because it claims too many.
    """
    import PIL.Image

    try:
        with open_image(io.BytesIO(data)) as image:
            return image.width * image.height
    except ImportError as error:  # It is HEIC.
        raise NotAPicture(str(error)) from error
    except (
        PIL.Image.DecompressionBombError,
        PIL.Image.DecompressionBombWarning,
    ):
        return math.inf
    # Headers of strangers may make it stumble over anything.
    except Exception:
        return None


def _png_pixels(data: bytes) -> int:
    """Pixels of a PNG file; 0 if it is none. Pillow takes 20 times as long."""
    if not data.startswith(_PNG_START):
        return 0
    width, height = struct.unpack(">2I", data[16:24].ljust(8, b"\0"))
    return int(width * height)


def _what(data: bytes) -> str:
    if not data:
        return "no bytes"
    return f"{len(data):,} bytes that begin with {data[:8]!r}"
