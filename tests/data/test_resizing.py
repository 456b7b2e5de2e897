"""Tests of the ways to resize: against Pillow."""

from itertools import product

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_dml.data.resizing import resize_longest, squash
from tests.data.small_images import photo

BILINEAR = Image.Resampling.BILINEAR


# Sizes of the image, of the frame, and of the image inside of the frame.
CASES = [
    ((60, 90), (48, 48), (32, 48)),
    ((91, 60), (48, 48), (48, 32)),
    ((20, 30), (33, 33), (22, 33)),
    ((31, 17), (25, 25), (25, 14)),
    ((50, 50), (33, 33), (33, 33)),
    ((33, 20), (33, 33), (33, 20)),
    ((60, 90), (48, 20), (13, 20)),
    ((60, 90), (16, 48), (16, 24)),
    ((1, 90), (24, 24), (1, 24)),
    ((90, 1), (24, 24), (24, 1)),
    ((1, 1), (5, 4), (4, 4)),
    ((1, 30), (21, 16), (1, 16)),
]


@pytest.mark.parametrize(("shape", "frame", "inside"), CASES)
def test_longest(
    shape: tuple[int, int], frame: tuple[int, int], inside: tuple[int, int]
) -> None:
    # Black would not be told from what is added.
    image = np.maximum(photo(*shape), 5)
    small = Image.fromarray(image).resize(inside[::-1], BILINEAR)
    expected = Image.new("RGB", frame[::-1])
    top, left = ((f - i) // 2 for f, i in zip(frame, inside, strict=True))
    expected.paste(small, (left, top))
    seen = resize_longest(tf.constant(image), frame).numpy()
    assert seen.shape == (*frame, 3)
    assert seen.dtype == np.uint8
    np.testing.assert_array_equal(seen > 0, np.asarray(expected) > 0)
    assert difference(seen, expected) <= 1


@pytest.mark.parametrize("frame", [(24, 24), (17, 23), (40, 16)])
def test_sizes_inside_of_the_frame_are_pillows(frame: tuple[int, int]) -> None:
    resized = tf.function(
        lambda images: resize_longest(images, frame),
        input_signature=[tf.TensorSpec((None, None, 1), tf.uint8)],
    )
    for shape in product((1, 2, 3, 5, 8, 11, 16, 17, 23, 24, 39, 47), repeat=2):
        white = Image.new("L", shape[::-1], 255)
        contained = ImageOps.contain(white, frame[::-1])
        # Pillow may leave nothing of a thin image.
        height, width = max(1, contained.height), max(1, contained.width)
        seen = resized(np.asarray(white)[..., None]).numpy()[..., 0] == 255
        rows, columns = np.flatnonzero(seen.any(1)), np.flatnonzero(seen.any(0))
        assert (len(rows), len(columns)) == (height, width), shape
        assert rows[0] == (frame[0] - height) // 2
        assert columns[0] == (frame[1] - width) // 2
        assert seen.sum() == height * width


@pytest.mark.parametrize("frame", [(24, 24), (31, 16)])
def test_squash(frame: tuple[int, int]) -> None:
    for shape, _, _ in CASES:
        image = photo(*shape)
        expected = Image.fromarray(image).resize(frame[::-1], BILINEAR)
        seen = squash(tf.constant(image), frame).numpy()
        assert seen.dtype == np.uint8
        assert difference(seen, expected) <= 1, shape


def difference(seen: np.ndarray, expected: Image.Image) -> int:
    """Pillow rounds after rows and again after columns."""
    return int(np.abs(seen.astype(int) - np.asarray(expected)).max())


@pytest.mark.parametrize("resize", [resize_longest, squash])
def test_what_fits_is_not_touched(resize) -> None:
    image = photo(20, 31)
    for pixels in (image, image + np.float32(0.25)):
        seen = resize(tf.constant(pixels), (20, 31))
        np.testing.assert_array_equal(seen, pixels)
    if resize is resize_longest:
        seen = resize(tf.constant(image), (31, 31))
        np.testing.assert_array_equal(seen[5:25], image)


@pytest.mark.parametrize("resize", [resize_longest, squash])
def test_a_batch_is_resized_as_its_images(resize) -> None:
    batch = np.stack([photo(13, 40, seed=i) for i in range(3)])
    seen = resize(tf.constant(batch), (24, 20))
    expected = [resize(tf.constant(image), (24, 20)) for image in batch]
    np.testing.assert_array_equal(seen, expected)
