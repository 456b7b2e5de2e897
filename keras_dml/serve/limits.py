"""Limits of pictures: by their headers, before anything is decoded."""

import io
import math

from keras_dml.data.decode import open_image
from keras_dml.serve.errors import RequestError

_STARTS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"BM")


class TooManyPixels(RequestError):
    """A picture that is too large to be decoded."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 413)


def check_picture(data: bytes, most_pixels: int) -> int:
    """The pixels of an image file by its header; nothing of it is decoded.

    Raises:
        RequestError: If it has no header of an image file that can be read.
        TooManyPixels: If it has more than `most_pixels`.
    """
    sides = _sides(data)
    if sides is None or 0 in sides:
        raise RequestError(
            "The picture must be an image file, such as JPEG, PNG or WebP. "
            f"Received: {len(data):,} bytes that begin with {data[:8]!r}."
        )
    return check_pixels(math.prod(sides), most_pixels)


def check_pictures(values: list[bytes], most_pixels: int) -> list[int]:
    """Checks those of a request's values that are image files.

    Args:
        values: Image files, or anything else.
        most_pixels: Pixels that each may have; all together may have eight
            times as many.

    Returns:
        The pixels of each; 0 of what is no image file.

    Raises:
        TooManyPixels: If there are more.
    """
    found = [
        check_pixels(math.prod(_sides(x) or [0]), most_pixels)
        if x.startswith(_STARTS)
        else 0
        for x in values
    ]
    if (total := sum(found)) > 8 * most_pixels:
        raise TooManyPixels(
            "The pictures in a request must not have more than "
            f"{8 * most_pixels:,} pixels in total. Received: {total:,}. "
            "Send them in several requests."
        )
    return found


def check_pixels(pixels: float, most_pixels: int) -> int:
    """The number of pixels; `TooManyPixels` if there are more."""
    if pixels > most_pixels:
        count = "many more" if pixels == math.inf else f"{pixels:,}"
        raise TooManyPixels(
            f"A picture must not have more than {most_pixels:,} pixels. "
            f"Received: {count}. Reduce its size, or start the server with a "
            "larger --max-pixels."
        )
    return int(pixels)


def _sides(data: bytes) -> tuple[float, float] | None:
    """Sides that the header of an image file claims; None if it has none.

    Infinity where Pillow does not open it because it claims too many.
    """
    import PIL.Image

    try:
        with open_image(io.BytesIO(data)) as image:
            return image.height, image.width
    except ImportError as error:  # It is HEIC.
        raise RequestError(str(error)) from error
    except (
        PIL.Image.DecompressionBombError,
        PIL.Image.DecompressionBombWarning,
    ):
        return math.inf, math.inf
    # Headers of strangers may make it stumble over anything.
    except Exception:
        return None
