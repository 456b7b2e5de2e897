"""Pictures that are part of a page."""

import base64
import io

from keras_dml.data.fields import Pixels


def data_uri(pixels: Pixels, side: int = 192) -> str:
    """A small JPEG as a data URI.

    Args:
        pixels: (H, W, 1) or (H, W, 3) uint8.
        side: The longer side of the picture in pixels, at most.
    """
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    image.thumbnail((side, side))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode(
        "ascii"
    )
