"""Tests of CUB-200-2011, on an archive of six classes."""

from pathlib import Path

import numpy as np
import pytest

from keras_dml.data import cub200
from tests.data.archives.writing import (
    PIXELS,
    write_image,
    write_lines,
    write_stray,
)

NAMES = [
    f"{c:03d}.Bird_{c}/Bird_{c}_{i:04d}.jpg"
    for c in range(1, 7)
    for i in range(c + 1)
]
LABELS = [int(name[:3]) for name in NAMES]
COUNTS = {
    "train classes": 4,
    "train images": 2 + 3 + 4 + 5,
    "test classes": 2,
    "test images": 6 + 7,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "CUB_200_2011"
    for name in NAMES:
        write_image(folder / "images" / name)
    rows = list(enumerate(NAMES, 1))
    write_lines(folder / "images.txt", (f"{i} {name}" for i, name in rows))
    # In another order than the images.
    write_lines(
        folder / "image_class_labels.txt",
        (f"{i} {LABELS[i - 1]}" for i, _ in reversed(rows)),
    )
    write_lines(
        folder / "bounding_boxes.txt",
        (f"{i} 2.0 1.0 {i % 5 + 1}.0 4.0" for i, _ in rows),
    )
    write_lines(
        folder / "classes.txt", (f"{c} {c:03d}.Bird_{c}" for c in range(1, 7))
    )
    write_lines(folder / "train_test_split.txt", (f"{i} 1" for i, _ in rows))
    write_stray(folder, "images.txt", "images")
    write_stray(folder / "images" / "001.Bird_1", "Bird_1_0000.jpg")
    return folder


def test_first_classes_train_others_test(folder: Path) -> None:
    splits = cub200(folder, counts=COUNTS)
    assert splits.name == "cub200"
    assert splits.trainval.classes.tolist() == [1, 2, 3, 4]
    assert splits.test.classes.tolist() == [5, 6]
    assert splits.validation.num_classes == 2
    assert len(splits.trainval) == 14
    assert splits.query_rows is None
    assert splits.test.ids == tuple(NAMES[14:])
    assert splits.test.labels.tolist() == LABELS[14:]
    assert splits.test.names[5] == "005.Bird_5"
    assert splits.test.paths[0] == str(folder / "images" / NAMES[14])
    np.testing.assert_array_equal(splits.test.read(3), PIXELS)


def test_cropped(folder: Path) -> None:
    splits = cub200(folder.parent, cropped=True, counts=COUNTS)
    for row in (0, 4, 12):
        number = 14 + row + 1
        width = number % 5 + 1
        np.testing.assert_array_equal(
            splits.test.read(row), PIXELS[1:5, 2 : 2 + width]
        )


def test_boxes_of_halves_are_rounded_outwards(folder: Path) -> None:
    count = len(NAMES)
    write_lines(
        folder / "bounding_boxes.txt",
        (f"{i} 2.5 1.5 2.2 3.0" for i in range(1, count + 1)),
    )
    splits = cub200(folder, cropped=True, counts=COUNTS)
    assert splits.test.boxes[0].tolist() == [2, 1, 5, 5]


def test_the_archive_is_counted(folder: Path) -> None:
    with pytest.raises(
        ValueError, match=r"3 test classes \(of 2\), 18 test images \(of 13\)"
    ):
        cub200(folder, counts=COUNTS | {"train classes": 3, "train images": 9})
    with pytest.raises(ValueError, match=r"27 train images \(of 5,864\)"):
        cub200(folder)
    assert cub200(folder, counts=None).test.classes.tolist() == [4, 5, 6]


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "images" / NAMES[5]).unlink()
    with pytest.raises(FileNotFoundError, match=f"1 of the 27.*{NAMES[5]}"):
        cub200(folder, counts=COUNTS)
    (folder / "classes.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"without classes\.txt"):
        cub200(folder)
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        cub200(tmp_path / "nowhere")
    archive = tmp_path / "CUB_200_2011.tgz"
    archive.write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="Unpack the archive, and"):
        cub200(archive)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("images.txt", "28 a b.jpg", "Line 28 .* must have 2 columns"),
        ("image_class_labels.txt", "28 6", r"28 lines, and ids .*\['28'\]"),
        ("image_class_labels.txt", "27 6", "must have one line for each"),
        ("classes.txt", "seven 007.Bird", "Every class in .*'seven'"),
    ],
)
def test_damaged_lists(folder, file, line, message) -> None:
    with (folder / file).open("a") as opened:
        opened.write(line + "\n")
    with pytest.raises(ValueError, match=message):
        cub200(folder, counts=COUNTS)


def test_an_empty_list(folder: Path) -> None:
    (folder / "images.txt").write_text("\n")
    with pytest.raises(ValueError, match="0 images"):
        cub200(folder, counts=COUNTS)
