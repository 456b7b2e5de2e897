"""Tests of the test view: against Pillow and by hand."""

from types import SimpleNamespace
from typing import Any, get_args

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_dml.data import View
from keras_dml.data.resizing import ResizeMode
from tests.data.small_images import photo


@pytest.mark.parametrize(
    ("shape", "size", "resize", "resized"),
    [
        ((60, 90), (32, 32), 40, (40, 60)),
        ((91, 60), (32, 24), None, (48, 32)),
        ((7, 50), (8, 8), 10, (10, 71)),
    ],
)
def test_view_matches_pillow(shape, size, resize, resized) -> None:
    image = photo(*shape)
    seen = View(size, 3, resize).apply(image).numpy()
    small = Image.fromarray(image).resize(
        resized[::-1], Image.Resampling.BILINEAR
    )
    top, left = ((r - s) // 2 for r, s in zip(resized, size, strict=True))
    expected = np.asarray(small)[top : top + size[0], left : left + size[1]]
    assert seen.shape == (*size, 3)
    assert seen.dtype == np.float32
    # Pillow rounds after rows and again after columns.
    assert np.abs(seen - expected).max() <= 1.5
    assert 0 <= seen.min() <= seen.max() <= 255


def test_default_view_crops_only_after_resizing_the_short_side() -> None:
    image = np.full((20, 30, 1), 200, np.uint8)
    image[:, [0, -1]] = 0  # Its left and right edges.
    squashed = View((40, 15), 1, resize_mode="squash").apply(image)
    expected = Image.fromarray(image[..., 0]).resize(
        (15, 40), Image.Resampling.BILINEAR
    )
    np.testing.assert_allclose(squashed[..., 0], expected, atol=1.5)
    whole = View((40, 15), 1, resize_mode="longest").apply(image)
    np.testing.assert_array_equal(whole[:15], 0)
    np.testing.assert_array_equal(whole[25:], 0)
    np.testing.assert_array_equal(whole[15:25], squashed[:10])
    cut = View((40, 15), 1).apply(image)
    np.testing.assert_array_equal(cut, np.full((40, 15, 1), 200))


@pytest.mark.parametrize("mode", get_args(ResizeMode))
def test_prepared_sizes_are_predicted(mode: str) -> None:
    view = View((12, 16), 3, 18, mode)
    sizes = np.array([(18, 18), (30, 50), (9, 7), (1, 25), (40, 1)])
    seen = [view.prepare(photo(*size)).shape[:2] for size in sizes]
    np.testing.assert_array_equal(view.prepared_sizes(sizes), seen)
    assert view.short_side == np.min(seen)


def test_image_of_the_views_size_is_unchanged() -> None:
    image = photo(48, 48, 1)
    np.testing.assert_array_equal(View((48, 48), 1).apply(image), image)
    dynamic = tf.function(
        View((48, 48), 1).apply,
        input_signature=[tf.TensorSpec((None, None, 1), tf.uint8)],
    )
    np.testing.assert_array_equal(dynamic(image), image)
    np.testing.assert_array_equal(
        View((20, 40), 1, 48).apply(image), image[14:34, 4:44]
    )


@pytest.mark.parametrize("image_channels", [1, 3])
@pytest.mark.parametrize("view_channels", [1, 3])
def test_channels_are_converted(
    image_channels: int, view_channels: int
) -> None:
    image = photo(10, 10, image_channels)
    seen = View((10, 10), view_channels).apply(image).numpy()
    mode = "L" if view_channels == 1 else "RGB"
    pixels = image if image_channels == 3 else image[..., 0]
    expected = np.asarray(Image.fromarray(pixels).convert(mode), np.float32)
    if view_channels == 1:
        expected = expected[..., None]
    assert seen.shape == (10, 10, view_channels)
    # Both round, and may round a half differently.
    assert np.abs(seen - expected).max() <= 1
    assert (seen != expected).mean() < 0.02


def test_equal_channels_become_exact_gray() -> None:
    gray = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    seen = View((16, 16), 1).apply(np.repeat(gray, 3, axis=-1))
    np.testing.assert_array_equal(seen, gray)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_any_dtype_of_pixels_is_accepted(dtype: str) -> None:
    image = photo(20, 30)
    view = View((12, 12), 3, 14)
    np.testing.assert_allclose(
        view.apply(image.astype(dtype)), view.apply(image), atol=1e-3
    )


@pytest.mark.parametrize("mode", get_args(ResizeMode))
def test_static_shapes_are_known(mode: str) -> None:
    spec = tf.TensorSpec((None, None, None, 1), tf.uint8)
    view = View((12, 16), 3, 18, mode)
    trace = tf.function(view.apply).get_concrete_function(spec)
    assert trace.output_shapes.as_list() == [None, 12, 16, 3]


def test_model_carries_its_view() -> None:
    inputs = keras.Input((24, 32, 3))
    model = keras.Model(inputs, keras.layers.Flatten()(inputs))
    assert View.of(model) == View((24, 32), 3)
    model.view = View((24, 32), 3, 40, "squash")
    assert View.of(model) == View((24, 32), 3, 40, "squash")
    other = keras.Model(inputs, keras.layers.Rescaling(2.0)(inputs))
    assert View.of(model).attach_to(other) is other
    assert View.of(other) == View.of(model)


@pytest.mark.parametrize(
    "shape", [(None, None, None, 3), (None, 10), [(None, 8, 8, 1)] * 2, None]
)
def test_model_without_an_image_input_has_no_view(shape: Any) -> None:
    with pytest.raises(ValueError, match=r"`model` of View\.of must"):
        View.of(SimpleNamespace(input_shape=shape))  # type: ignore[arg-type]
