"""Tests of resizing, against Pillow, and of windows, against a loop."""

import math
from itertools import product

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_dml.data.resizing import (
    TRIES,
    cut_windows,
    position,
    random_area,
    resize_longest,
    squash,
)
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
def test_longest_matches_pillow(shape, frame, inside) -> None:
    # Black pixels would look like padding.
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
def test_sizes_inside_the_frame_match_pillow(frame: tuple[int, int]) -> None:
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
def test_squash_matches_pillow(frame: tuple[int, int]) -> None:
    for shape, _, _ in CASES:
        image = photo(*shape)
        expected = Image.fromarray(image).resize(frame[::-1], BILINEAR)
        seen = squash(tf.constant(image), frame).numpy()
        assert seen.dtype == np.uint8
        assert difference(seen, expected) <= 1, shape


def difference(seen: np.ndarray, expected: Image.Image) -> int:
    """Pillow rounds after rows and again after columns."""
    return int(np.abs(seen.astype(int) - np.asarray(expected)).max())


def test_positions_are_equally_likely() -> None:
    draws = tf.constant(np.linspace(0, 1, 1000, endpoint=False), tf.float32)
    counts = np.bincount(position(draws, tf.constant(4)), minlength=5)
    assert counts.tolist() == [200] * 5


@pytest.mark.parametrize("room", [0, 1, 7, 1000, 16383])
def test_position_never_exceeds_the_room(room: int) -> None:
    largest = tf.constant(np.nextafter(np.float32(1), np.float32(0)))
    assert position(largest, tf.constant(room)) == room
    assert position(tf.constant(0.0), tf.constant(room)) == 0


@pytest.mark.parametrize("channels", [1, 3])
def test_cut_windows_match_slices(channels: int) -> None:
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (6, 9, 8, channels), dtype=np.uint8)
    draws = rng.random((6, 2), np.float32)
    flip = np.array([True, False] * 3)
    cut = cut_windows(images, draws, flip, (5, 7)).numpy()
    assert cut.dtype == np.uint8
    for image, (y, x), flipped, window in zip(
        images, draws, flip, cut, strict=True
    ):
        top, left = math.floor(y * 5), math.floor(x * 2)
        expected = image[top : top + 5, left : left + 7]
        expected = expected[:, ::-1] if flipped else expected
        np.testing.assert_array_equal(window, expected)


def naive_window(shape, draws, scale, ratio) -> tuple[int, int, int, int]:
    """top, left, height, width as torchvision's loop finds them."""
    height, width = shape
    areas, ratios = draws[2 : 2 + TRIES], draws[2 + TRIES :]
    for a, r in zip(areas, ratios, strict=True):
        area = height * width * (scale[0] + a * (scale[1] - scale[0]))
        low, high = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(low + r * (high - low))
        w = round(math.sqrt(area * aspect))
        h = round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = math.floor(draws[0] * (height - h + 1))
            left = math.floor(draws[1] * (width - w + 1))
            return top, left, h, w
    if width / height < ratio[0]:
        w, h = width, round(width / ratio[0])
    elif width / height > ratio[1]:
        w, h = round(height * ratio[1]), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


@pytest.mark.parametrize(
    ("shape", "scale", "ratio"),
    [
        ((40, 60), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((60, 40), (0.9, 1.0), (3 / 4, 4 / 3)),
        # No window of this area fits, so the fallback is taken.
        ((20, 200), (0.9, 1.0), (3 / 4, 4 / 3)),
        ((200, 20), (0.9, 1.0), (3 / 4, 4 / 3)),
        ((30, 30), (1.0, 1.0), (1.5, 2.0)),
        ((1, 1), (0.08, 1.0), (3 / 4, 4 / 3)),
    ],
)
def test_random_area_matches_a_naive_version(shape, scale, ratio) -> None:
    sides = tf.constant(shape)
    area = tf.function(lambda x: random_area(sides, x, scale, ratio))
    rng = np.random.default_rng(1)
    for _ in range(20):
        draws = rng.random(2 + 2 * TRIES, np.float32)
        window = tf.concat(area(draws), 0).numpy()
        expected = naive_window(shape, draws, scale, ratio)
        np.testing.assert_array_equal(window, expected)
