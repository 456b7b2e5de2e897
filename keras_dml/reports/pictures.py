"""Data URIs: pictures and files that stand in a page itself."""

import base64
import io
from typing import TYPE_CHECKING

from keras_dml.data.fields import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image


def data_uri(content: bytes, kind: str) -> str:
    """A file of a MIME type as a data URI."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def thumbnail(
    pixels: Pixels, side: int = 192, kind: str = "jpeg", quality: int = 85
) -> str:
    """A small picture as a data URI.

    Args:
        pixels: (H, W, 1) or (H, W, 3) uint8.
        side: The longer side of the picture in pixels, at most.
        kind: "jpeg" or "webp".
        quality: From 0 to 100.
    """
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    image.thumbnail((side, side))
    return picture(image, kind, quality)


def picture(image: "Image", kind: str, quality: int) -> str:
    """An image of Pillow's as a data URI; see `thumbnail`."""
    file = io.BytesIO()
    image.save(file, kind, quality=quality)
    return data_uri(file.getvalue(), f"image/{kind}")
