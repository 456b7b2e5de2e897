"""Tests of the training view."""

import itertools
from typing import Any, get_args

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_dml.data.resizing import ResizeMode
from keras_dml.data.view import Augment, View

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
SMALL = View((12, 12), 3, resize=16)
MODES = get_args(ResizeMode)


def draws_of(augment: Augment, count: int = 1) -> np.ndarray:
    return np.random.default_rng(1).random((count, augment.draws), np.float32)


def view_of(augment: Augment, image: np.ndarray, draws: Any) -> tf.Tensor:
    (view,) = augment.each(tf.constant(image), draws[None])
    return view


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("resize", [None, 16])
def test_center_crop_equals_the_test_view(
    mode: str, resize: int | None
) -> None:
    view = View((12, 10), 3, resize, mode)
    augment = Augment(view, "center")
    seen = view_of(augment, IMAGE, draws_of(augment)[0])
    np.testing.assert_array_equal(seen, view.apply(IMAGE))


# The squares that Pillow makes of the image.
SQUARES = {
    "longest": ImageOps.pad(
        Image.fromarray(IMAGE), (16, 16), Image.Resampling.BILINEAR
    ),
    "squash": Image.fromarray(IMAGE).resize(
        (16, 16), Image.Resampling.BILINEAR
    ),
}


@pytest.mark.parametrize("mode", SQUARES)
def test_windows_are_cut_out_of_the_resized_image(mode: str) -> None:
    augment = Augment(View((12, 10), 3, 16, mode))
    square = np.asarray(SQUARES[mode], np.float32)
    for top, left in itertools.product(range(5), range(7)):
        draws = [0.9, (top + 0.5) / 5, (left + 0.5) / 7]
        seen = view_of(augment, IMAGE, np.array(draws, np.float32))
        expected = square[top : top + 12, left : left + 10]
        np.testing.assert_allclose(seen, expected, atol=1)


@pytest.mark.parametrize("mode", SQUARES)
def test_random_areas_are_cut_out_of_the_resized_image(mode: str) -> None:
    whole = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0)}
    view = View((12, 12), 3, 16, mode)
    augment = Augment(view, "random_resized", **whole)
    seen = view_of(augment, IMAGE, draws_of(augment)[0])
    expected = SQUARES[mode].resize((12, 12), Image.Resampling.BILINEAR)
    # Each of the two is rounded twice by Pillow.
    np.testing.assert_allclose(seen, np.asarray(expected, float), atol=2)


def test_padding_is_measured_by_the_resized_image() -> None:
    view = View((12, 6), 3, resize_mode="squash")
    Augment(view, pad=5)
    with pytest.raises(ValueError, match="`pad` of Augment.*short side 6"):
        Augment(view, pad=6)


@pytest.mark.parametrize("crop", ["random", "random_resized", "center"])
def test_first_draw_decides_the_flip(crop: str) -> None:
    plain, flipping = Augment(SMALL, crop), Augment(SMALL, crop, flip=True)
    draws = draws_of(plain)[0]
    for first, mirrored in ((0.0, True), (0.49, True), (0.5, False)):
        draws[0] = first
        expected = view_of(plain, IMAGE, draws).numpy()
        seen = view_of(flipping, IMAGE, draws)
        expected = expected[:, ::-1] if mirrored else expected
        np.testing.assert_array_equal(seen, expected)


@pytest.mark.parametrize(
    ("crop", "channels", "mode"),
    [
        *(("random", 3, mode) for mode in MODES),
        ("random", 1, "longest"),
        ("center", 3, "shortest"),
        ("center", 1, "squash"),
    ],
)
def test_batch_equals_its_images_one_by_one(crop, channels, mode) -> None:
    augment = Augment(View((12, 14), channels, 18, mode), crop, flip=True)
    rng = np.random.default_rng(1)
    batch = rng.integers(0, 256, (5, 20, 30, 3), dtype=np.uint8)
    draws = draws_of(augment, 5)
    one_by_one = [
        view_of(augment, x, d) for x, d in zip(batch, draws, strict=True)
    ]
    seen = augment.apply_batch(batch, draws)
    assert seen.shape == (5, 12, 14, channels)
    assert seen.dtype == tf.uint8
    np.testing.assert_array_equal(seen, one_by_one)


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_padding_matches_numpy(mode: Any) -> None:
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, (8, 8, 1), dtype=np.uint8)
    augment = Augment(View((8, 8), 1), pad=3, pad_mode=mode)
    padded = np.pad(image, ((3, 3), (3, 3), (0, 0)), mode)
    for y in range(7):
        draws = np.array([0.9, (y + 0.5) / 7, 6.5 / 7], np.float32)
        np.testing.assert_array_equal(
            view_of(augment, image, draws), padded[y : y + 8, 6:14]
        )


def test_random_resized_crops_the_original_or_the_resized_image() -> None:
    draws = np.zeros(Augment(SMALL, "random_resized").draws, np.float32)
    whole = {"scale": (1.0, 1.0), "ratio": (1.5, 1.5)}
    original = Augment(View((12, 12), 3), "random_resized", **whole)
    expected = tf.image.resize(IMAGE, (12, 12), antialias=True)
    np.testing.assert_allclose(
        view_of(original, IMAGE, draws), expected, atol=0.501
    )
    twice = view_of(Augment(SMALL, "random_resized", **whole), IMAGE, draws)
    resized = tf.round(tf.image.resize(IMAGE, (16, 24), antialias=True))
    expected = tf.image.resize(resized, (12, 12), antialias=True)
    np.testing.assert_allclose(twice, expected, atol=0.501)


@pytest.mark.parametrize("crop", ["random", "random_resized", "center"])
def test_images_smaller_than_the_view_are_enlarged(crop: str) -> None:
    augment = Augment(View((32, 40), 3), crop)
    seen = view_of(augment, IMAGE[:5, :7], draws_of(augment)[0]).numpy()
    assert seen.shape == (32, 40, 3)
    assert seen.std() > 20
    assert 0 <= seen.min() <= seen.max() <= 255
