"""Thumbnails: small pictures as data URIs, which a page can contain."""

import base64
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dml.data.decode import read_image
from keras_dml.data.validation import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 192
"""The longer side of a thumbnail, in pixels, unless another is given."""


def data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def thumbnail(
    pixels: Pixels, side: int = SIDE, kind: str = "jpeg", quality: int = 85
) -> str:
    """Pixels, (H, W, 1) or (H, W, 3), as a small picture in a data URI."""
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    image.thumbnail((side, side))
    return picture(image, kind, quality)


def row_thumbnail(row: Mapping[str, Any], side: int = SIDE) -> str | None:
    """The "thumbnail" of a gallery row, or one of its "path"; or None."""
    uri, box = str(row.get("thumbnail")), row.get("box")
    # Any other address would make the page send a request.
    if uri.startswith("data:image/"):
        return uri
    if not row.get("path"):
        return None
    try:
        part = box and np.array(box)
        return thumbnail(read_image(str(row["path"]), part, side), side)
    except (TypeError, OverflowError) as error:  # A box may be anything.
        raise ValueError(str(error)) from None


def picture(image: "Image", kind: str, quality: int) -> str:
    """A Pillow image as a data URI; see `thumbnail`."""
    file = io.BytesIO()
    image.save(file, kind, quality=quality)
    return data_uri(file.getvalue(), f"image/{kind}")
