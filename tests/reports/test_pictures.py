import base64
import io

import numpy as np
import pytest
from PIL import Image

from keras_dml.data.thumbnails import thumbnail


@pytest.mark.parametrize("kind", ["jpeg", "webp"])
@pytest.mark.parametrize(
    ("shape", "size", "mode"),
    [
        ((40, 20, 3), (20, 40), "RGB"),
        ((400, 100, 3), (48, 192), "RGB"),
        ((10, 10, 1), (10, 10), "L"),
        ((1, 5000, 3), (192, 1), "RGB"),
    ],
)
def test_thumbnails_keep_proportions_and_mode(shape, size, mode, kind) -> None:
    pixels = np.full(shape, 77, np.uint8)
    start, _, content = thumbnail(pixels, kind=kind).partition(",")
    assert start == f"data:image/{kind};base64"
    with Image.open(io.BytesIO(base64.b64decode(content))) as image:
        assert image.size == size
        assert image.mode == (mode if kind == "jpeg" else "RGB")
        assert abs(int(np.asarray(image).mean()) - 77) <= 1
