"""Tests of VehicleID, on an archive of nine vehicles."""

from pathlib import Path

import pytest

from keras_dml.data import vehicleid
from tests.data.archives.writing import write_image, write_lines

LISTS = {
    "train_list": [(1, 1008), (2, 1008), (3, 7), (4, 30), (5, 31), (6, 32)],
    "test_list_800": [(12345, 40), (11, 40), (12, 41)],
    "test_list_1600": [(12345, 40), (11, 40), (12, 41), (13, 42)],
    "test_list_2400": [(12, 41), (13, 42), (14, 43), (15, 43)],
}
COUNTS = {
    "train classes": 5,
    "train images": 6,
    "small classes": 2,
    "medium classes": 3,
    "large classes": 3,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "VehicleID_V1.0"
    for name, rows in LISTS.items():
        write_lines(
            folder / "train_test_split" / f"{name}.txt",
            (f"{image:07d} {vehicle}" for image, vehicle in rows),
        )
        for image, _ in rows:
            write_image(folder / "image" / f"{image:07d}.jpg")
    return folder


def test_three_test_sets(folder: Path) -> None:
    splits = vehicleid(folder, counts=COUNTS)
    assert splits.trainval.classes.tolist() == [7, 30, 31, 32, 1008]
    assert splits.validation.num_classes == 2
    assert splits.test is splits.tests["small"]
    assert splits.test.labels.tolist() == [40, 40, 41]
    assert splits.test.ids == ("0012345", "0000011", "0000012")
    assert splits.test.read(0).shape == (9, 12, 3)
    assert list(splits.tests) == ["small", "medium", "large"]
    large = vehicleid(folder.parent, test="large", counts=COUNTS)
    assert large.test.labels.tolist() == [41, 42, 43, 43]


def test_counts_and_missing(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"5 train classes \(of 13,164\)"):
        vehicleid(folder)
    with pytest.raises(
        ValueError, match="must be one of .*'small'.*test='all'"
    ):
        vehicleid(folder, test="all", counts=COUNTS)
    (folder / "image" / "0000013.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"0000013\.jpg"):
        vehicleid(folder, counts=COUNTS)
