"""Tests of boxes: parts of files that are the images."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_dml.data import ImageSet, View, concatenate, eval_batches, pipeline
from tests.data.small_images import LABELS, noise, sampler_of

PIXELS = noise(20, 16, 3)
BOXES = np.array([[i % 4, i % 5, i % 4 + 11, i % 5 + 12] for i in range(24)])
PARTS = np.stack(
    [x[t:b, left:r] for x, (left, t, r, b) in zip(PIXELS, BOXES, strict=True)]
)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{i}.png" for i in range(len(PIXELS))]
    for path, pixels in zip(paths, PIXELS, strict=True):
        Image.fromarray(pixels).save(path)
    return paths


def test_read_and_select(paths: list[Path]) -> None:
    images = ImageSet(paths, LABELS, boxes=BOXES)
    np.testing.assert_array_equal(images.read(7), PARTS[7])
    chosen = images.select([9, 3])
    np.testing.assert_array_equal(chosen.read(1), PARTS[3])
    joined = concatenate([chosen, images])
    np.testing.assert_array_equal(joined.read(2 + 5), PARTS[5])
    with pytest.raises(ValueError, match="1 of 2 with boxes"):
        concatenate([images, ImageSet(paths, LABELS)])


@pytest.mark.slow
def test_pipeline_is_as_with_the_parts_themselves(paths: list[Path]) -> None:
    sources = (ImageSet(paths, LABELS, boxes=BOXES), ImageSet(PARTS, LABELS))
    boxed, parts = (
        list(
            pipeline(
                x, sampler_of(x), 9, crop="random_resized", flip=True
            ).as_numpy_iterator()
        )
        for x in sources
    )
    for (x, y), (expected, same) in zip(boxed, parts, strict=True):
        np.testing.assert_array_equal(y["index"], same["index"])
        np.testing.assert_allclose(x, expected, atol=1e-3)


def test_what_reaches_beyond_the_image_is_cut_off(paths: list[Path]) -> None:
    images = ImageSet(paths[:1], [0], boxes=[[10, 4, 99, 99]])
    np.testing.assert_array_equal(images.read(0), PIXELS[0, 4:, 10:])
    (seen,) = eval_batches(images, View((6, 6), 3, 6))
    expected = View((6, 6), 3, 6).apply(PIXELS[0, 4:, 10:])
    np.testing.assert_allclose(seen[0], expected, atol=1e-3)


def test_a_box_outside_of_the_image_is_named(paths: list[Path]) -> None:
    boxes = BOXES.copy()
    boxes[5] = [16, 0, 20, 4]
    images = ImageSet(paths, LABELS, boxes=boxes)
    message = r"\(16, 0, 20, 4\) is outside of the image file .*5\.png"
    with pytest.raises(ValueError, match=f"{message}.*16 pixels wide and 20"):
        images.read(5)
    with pytest.raises(tf.errors.OpError, match=message):
        list(eval_batches(images, View((8, 8), 3)))


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ([[0, 0, 4, 4]] * 3, "3 boxes, 2 images"),
        ([[0, 0, 4], [0, 0, 4]], r"shape \(2, 3\)"),
        ([[0.0, 0, 4, 4]] * 2, "dtype float64"),
        ([[0, 0, 4, 4], [4, 0, 4, 4]], r"\[4, 0, 4, 4\] in row 1"),
        ([[0, 5, 4, 4], [0, 0, 4, 4]], r"\[0, 5, 4, 4\] in row 0"),
        ([[-1, 0, 4, 4], [0, 0, 4, 4]], r"\[-1, 0, 4, 4\] in row 0"),
    ],
)
def test_unfit_boxes(boxes: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageSet(["a", "b"], [0, 1], boxes=boxes)  # type: ignore[arg-type]


def test_pixels_have_no_boxes() -> None:
    with pytest.raises(ValueError, match="`boxes` of ImageSet require files"):
        ImageSet(PIXELS, LABELS, boxes=BOXES)
