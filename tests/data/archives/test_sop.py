"""Tests of Stanford Online Products, on an archive of nine products."""

from pathlib import Path

import pytest

from keras_dml.data import sop
from tests.data.archives.writing import write_image, write_lines

HEADER = "image_id class_id super_class_id path"
TRAIN = [
    (1, 1, 1, "bicycle_final/111085122871_0.JPG"),
    (2, 1, 1, "bicycle_final/111085122871_1.JPG"),
    (3, 2, 1, "bicycle_final/111265328556_0.JPG"),
    (4, 3, 4, "coffee_maker_final/2_0.JPG"),
    (5, 4, 4, "coffee_maker_final/3_0.JPG"),
    (6, 5, 4, "coffee_maker_final/4_0.JPG"),
]
TEST = [
    (7, 6, 1, "bicycle_final/5_0.JPG"),
    (8, 7, 12, "toaster_final/6_0.JPG"),
    (9, 7, 12, "toaster_final/6_1.JPG"),
]
COUNTS = {
    "train classes": 5,
    "train images": 6,
    "test classes": 2,
    "test images": 3,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "Stanford_Online_Products"
    for name, rows in (("train", TRAIN), ("test", TEST)):
        lines = [HEADER, *(" ".join(map(str, row)) for row in rows)]
        write_lines(folder / f"Ebay_{name}.txt", lines, "\r\n")
        for *_, path in rows:
            write_image(folder / path)
    return folder


@pytest.mark.parametrize("above", [False, True])
def test_split_as_the_archive_says(folder: Path, above: bool) -> None:
    splits = sop(folder.parent if above else folder, counts=COUNTS)
    assert splits.name == "sop"
    assert splits.trainval.classes.tolist() == [1, 2, 3, 4, 5]
    assert splits.validation.num_classes == 2
    assert splits.test.labels.tolist() == [6, 7, 7]
    assert splits.test.ids == tuple(row[3] for row in TEST)
    assert splits.test.names == {6: "bicycle 6", 7: "toaster 7"}
    assert splits.trainval.names[3] == "coffee_maker 3"
    assert splits.test.read(0).shape == (9, 12, 3)
    assert splits.test.groups["super_class"].tolist() == [1, 12, 12]
    assert sorted(splits.trainval.groups["super_class"]) == [1, 1, 1, 4, 4, 4]


def test_counts_and_missing(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"5 train classes \(of 11,318\)"):
        sop(folder)
    (folder / TEST[0][3]).unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of the 3 .*Ebay_test"):
        sop(folder, counts=COUNTS)
    (folder / "Ebay_test.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"without Ebay_test\.txt"):
        sop(folder, counts=COUNTS)
