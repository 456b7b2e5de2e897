"""Images with random changes: the same pixels everywhere, or refused."""

import io
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_dml.data.decode import read_image
from keras_dml.data.encoded import of_file
from tests.search.test_mutations import changed

PIXELS = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")


def encoded(kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, kind)
    return file.getvalue()


@pytest.fixture(scope="module")
def decode():
    """The graph of all pipelines, of a path."""
    specs = [tf.TensorSpec((), tf.string)]
    return tf.function(
        lambda path: of_file(path).pixels(), specs, autograph=False
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_random_changes(decode, kind: str, tmp_path: Path) -> None:
    draw, refused = random.Random(0), 0
    whole, path = encoded(kind), tmp_path / "changed.bin"
    for _ in range(30):
        path.write_bytes(changed(whole, draw))
        try:
            seen = decode(tf.constant(str(path))).numpy()
        # The message about a chunk of PNG quotes its bytes.
        except (tf.errors.OpError, UnicodeDecodeError):
            refused += 1
            continue
        pixels = np.broadcast_to(read_image(path), seen.shape)
        np.testing.assert_array_equal(seen, pixels)
    assert refused
