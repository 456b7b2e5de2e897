"""Tests of windows: against a loop that cuts one image at a time."""

import math

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.data.resizing import (
    TRIES,
    cut_windows,
    position,
    random_area,
)


def test_every_position_is_as_likely() -> None:
    draws = tf.constant(np.linspace(0, 1, 1000, endpoint=False), tf.float32)
    counts = np.bincount(position(draws, tf.constant(4)), minlength=5)
    assert counts.tolist() == [200] * 5


@pytest.mark.parametrize("room", [0, 1, 7, 1000, 16383])
def test_a_position_never_exceeds_the_room(room: int) -> None:
    largest = tf.constant(np.nextafter(np.float32(1), np.float32(0)))
    assert position(largest, tf.constant(room)) == room
    assert position(tf.constant(0.0), tf.constant(room)) == 0


@pytest.mark.parametrize("channels", [1, 3])
def test_cut_windows(channels: int) -> None:
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


def naive_window(
    shape: tuple[int, int],
    draws: np.ndarray,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> tuple[int, int, int, int]:
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
def test_random_area(
    shape: tuple[int, int],
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> None:
    sides = tf.constant(shape)
    area = tf.function(lambda x: random_area(sides, x, scale, ratio))
    rng = np.random.default_rng(1)
    for _ in range(20):
        draws = rng.random(2 + 2 * TRIES, np.float32)
        found = tf.concat(area(draws), 0).numpy()
        expected = naive_window(shape, draws, scale, ratio)
        np.testing.assert_array_equal(found, expected)
