"""Tests of the sheet of images."""

from pathlib import Path

import numpy as np
from PIL import Image

from keras_dml.data import ImageSet, preview


def test_preview_rows_are_classes() -> None:
    labels = np.array([5, 1, 5, 9, 1, 5])
    pixels = (
        np.full((6, 8, 8), 0, np.uint8)
        + np.arange(6, dtype=np.uint8)[:, None, None]
    )
    sheet = preview(ImageSet(pixels, labels), columns=3, cell=8)
    assert sheet.mode == "RGB"
    assert sheet.size == (3 * 10 + 2, 3 * 10 + 2)
    centers = np.asarray(sheet)[6::10, 6::10, 0]
    assert centers.tolist() == [[1, 4, 128], [0, 2, 5], [3, 128, 128]]


def test_classes_are_spread_evenly() -> None:
    pixels = np.zeros((50, 4, 4, 3), np.uint8)
    pixels[..., 1] = np.arange(50)[:, None, None]
    sheet = preview(ImageSet(pixels, np.arange(50)), 3, 1, cell=4)
    assert np.asarray(sheet)[4::6, 3, 1].tolist() == [0, 24, 49]


def test_files_of_any_shape_fit_into_cells(tmp_path: Path) -> None:
    for name, size in (("a", (40, 10)), ("b", (10, 40))):
        Image.new("RGB", size, (255, 0, 0)).save(tmp_path / f"{name}.png")
    images = ImageSet([tmp_path / "a.png", tmp_path / "b.png"], [0, 1])
    red = np.asarray(preview(images, columns=1, cell=20))[..., 1] == 0
    assert red[: 20 + 2].sum() == red[20 + 4 :].sum() == 20 * 5


def test_rows_begin_with_the_names_of_their_classes() -> None:
    pixels = np.full((3, 8, 8), 128, np.uint8)
    names = {1: "crow", 2: "crow", 3: "a name much too long for its column"}

    def captions(names: dict[int, str]) -> list[np.ndarray]:
        sheet = preview(ImageSet(pixels, [1, 2, 3], names), 3, 1, cell=20)
        assert sheet.size == (128 + 24, 3 * 22 + 2)
        x = np.asarray(sheet)[..., 0]
        assert (x[:, 128:] == 128).all()
        return [x[2 + 22 * i : 22 + 22 * i, :128] for i in range(3)]

    first, second, long = captions(names)
    assert first.min() < 32
    assert np.array_equal(first, second)
    assert (long[:, -4:] == 128).all() and long[:, 100:].min() < 32
    without = captions({2: "crow"})
    assert (without[0] == 128).all()
    assert np.array_equal(without[1], second)
