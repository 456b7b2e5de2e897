import base64
import io

import numpy as np
import pytest
from PIL import Image

from keras_dml.data.data_uri import data_uri


@pytest.mark.parametrize(
    ("shape", "size", "mode"),
    [
        ((40, 20, 3), (20, 40), "RGB"),
        ((400, 100, 3), (48, 192), "RGB"),
        ((10, 10, 1), (10, 10), "L"),
        ((1, 5000, 3), (192, 1), "RGB"),
    ],
)
def test_small_jpegs(shape, size, mode) -> None:
    pixels = np.full(shape, 77, np.uint8)
    kind, _, content = data_uri(pixels).partition(",")
    assert kind == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(content))) as image:
        assert (image.size, image.mode) == (size, mode)
        assert abs(int(np.asarray(image).mean()) - 77) <= 1
