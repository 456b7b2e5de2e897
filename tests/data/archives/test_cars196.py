"""Tests of Cars196, on archives of 130 classes in both layouts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from keras_dml.data import cars196
from tests.data.archives.writing import PIXELS, write_image

# Classes beyond 127 and pixels beyond 255 show sums that wrap around.
CLASSES = 130
LABELS = np.repeat(np.arange(1, CLASSES + 1), 2)
BOXES = np.array([[1, 1, 12, 9], [3, 2, 5, 8]] * CLASSES)
COUNTS = {
    "train classes": 65,
    "train images": 130,
    "test classes": 65,
    "test images": 130,
}


def annotations(names: list[str], rows: np.ndarray, last: str) -> Any:
    """A MATLAB structure array of the archive's fields and types."""
    merged = last == "relative_im_path"
    numbers = ["bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class"]
    fields = [last, *numbers, "test"] if merged else [*numbers, last]
    array = np.zeros((1, len(rows)), [(name, object) for name in fields])
    for i, row in enumerate(rows):
        values = [*BOXES[row].astype(np.uint16), np.uint8(LABELS[row])]
        for name, value in zip(numbers, values, strict=True):
            array[name][0, i] = np.array([[value]])
        array[last][0, i] = names[i]
        if merged:
            array["test"][0, i] = np.array([[np.uint8(i % 2)]])
    return array


def class_names() -> np.ndarray:
    names = np.zeros((1, CLASSES), object)
    names[0] = [f"Car {i}" for i in range(1, CLASSES + 1)]
    return names


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    folder = tmp_path / "merged"
    rows = np.arange(len(LABELS))
    names = [f"car_ims/{i + 1:06d}.jpg" for i in rows]
    for name in names:
        write_image(folder / name)
    content = {
        "annotations": annotations(names, rows, "relative_im_path"),
        "class_names": class_names(),
    }
    savemat(folder / "cars_annos.mat", content)
    return folder


@pytest.fixture
def devkit(tmp_path: Path) -> Path:
    folder = tmp_path / "devkit"
    (folder / "devkit").mkdir(parents=True)
    files = ("cars_train_annos.mat", "cars_test_annos_withlabels.mat")
    for part, file in enumerate(files):
        rows = np.arange(part, len(LABELS), 2)
        names = [f"{i + 1:05d}.jpg" for i in range(len(rows))]
        for name in names:
            write_image(folder / ("cars_train", "cars_test")[part] / name)
        content = {"annotations": annotations(names, rows, "fname")}
        savemat(folder / "devkit" / file, content)
    names_file = folder / "devkit" / "cars_meta.mat"
    savemat(names_file, {"class_names": class_names()})
    return folder


def test_merged(merged: Path) -> None:
    splits = cars196(merged, counts=COUNTS)
    assert splits.trainval.classes.tolist() == list(range(1, 66))
    assert splits.test.classes.tolist() == list(range(66, 131))
    assert splits.test.labels.tolist() == LABELS[130:].tolist()
    assert splits.test.ids[0] == "car_ims/000131.jpg"
    assert splits.test.names[130] == "Car 130"
    assert splits.validation.num_classes == 13
    np.testing.assert_array_equal(splits.test.read(1), PIXELS)


def test_boxes_count_from_one_and_include_their_ends(merged: Path) -> None:
    splits = cars196(merged, cropped=True, counts=COUNTS)
    np.testing.assert_array_equal(splits.test.read(0), PIXELS)
    np.testing.assert_array_equal(splits.test.read(1), PIXELS[1:8, 2:5])


@pytest.mark.parametrize("moved", [False, True])
def test_devkit_is_merged(devkit: Path, moved: bool) -> None:
    name = "cars_test_annos_withlabels.mat"
    if moved:
        (devkit / "devkit" / name).rename(devkit / name)
    splits = cars196(devkit, cropped=True, counts=COUNTS)
    assert splits.trainval.classes.tolist() == list(range(1, 66))
    assert splits.test.labels.tolist() == [*range(66, 131)] * 2
    assert splits.test.names[66] == "Car 66"
    assert splits.test.ids[0] == "cars_train/00066.jpg"
    assert splits.test.ids[65] == "cars_test/00066.jpg"
    np.testing.assert_array_equal(splits.test.read(65), PIXELS[1:8, 2:5])


def test_names_are_optional(devkit: Path) -> None:
    (devkit / "devkit" / "cars_meta.mat").unlink()
    assert not cars196(devkit, counts=COUNTS).test.names


def test_what_is_missing_or_damaged(merged: Path, devkit: Path) -> None:
    with pytest.raises(ValueError, match=r"196 train images \(of 8,054\)"):
        cars196(merged)
    (merged / "car_ims" / "000007.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of the 260.*000007\.jpg"):
        cars196(merged, counts=COUNTS)
    (merged / "cars_annos.mat").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"cars_annos\.mat must be a MATLAB"):
        cars196(merged, counts=COUNTS)
    labeled = devkit / "devkit" / "cars_test_annos_withlabels.mat"
    labeled.rename(devkit / "devkit" / "cars_test_annos.mat")
    with pytest.raises(FileNotFoundError, match="without .*withlabels"):
        cars196(devkit, counts=COUNTS)


def test_the_test_annotations_without_labels(devkit: Path) -> None:
    labeled = devkit / "devkit" / "cars_test_annos_withlabels.mat"
    fields = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "fname")
    array = np.zeros((1, 1), [(name, object) for name in fields])
    savemat(labeled, {"annotations": array})
    with pytest.raises(ValueError, match="must have annotations with classes"):
        cars196(devkit, counts=COUNTS)
