"""Tests of In-Shop, on an archive of seven items."""

from pathlib import Path

import pytest

from keras_dml.data import inshop
from tests.data.archives.writing import write_image, write_lines

ROWS = [
    ("WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
    ("WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
    ("WOMEN/Tees_Tanks/id_00000001/02_1_front.jpg", "id_00000001", "query"),
    ("WOMEN/Tees_Tanks/id_00000001/02_3_back.jpg", "id_00000001", "gallery"),
    ("MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "train"),
    ("MEN/Denim/id_00000084/01_1_front.jpg", "id_00000084", "gallery"),
    ("MEN/Denim/id_00000084/01_7_additional.jpg", "id_00000084", "query"),
    ("MEN/Denim/id_00000084/02_7_additional.jpg", "id_00000084", "query"),
]  # fmt: skip
COUNTS = {
    "train classes": 2,
    "train images": 3,
    "test classes": 2,
    "query images": 3,
    "gallery images": 2,
}


def write_partition(folder: Path, count: int = len(ROWS)) -> None:
    lines = [str(count), "image_name item_id evaluation_status"]
    lines += [
        f"img/{name:<70}{item} {status:<8}" for name, item, status in ROWS
    ]
    write_lines(folder / "Eval" / "list_eval_partition.txt", lines)


@pytest.fixture(params=["img", "Img/img"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    for name, _, _ in ROWS:
        write_image(tmp_path / request.param / name)
    write_partition(tmp_path)
    return tmp_path


def test_queries_and_gallery(folder: Path) -> None:
    splits = inshop(folder, counts=COUNTS)
    assert splits.trainval.classes.tolist() == [2, 80]
    assert splits.test.labels.tolist() == [1, 1, 84, 84, 84]
    assert splits.query_rows.tolist() == [0, 3, 4]
    assert splits.gallery_rows.tolist() == [1, 2]
    assert splits.test.ids[4] == f"img/{ROWS[7][0]}"
    assert splits.test.names[84] == "id_00000084"
    assert splits.test.read(2).shape == (9, 12, 3)


def test_counts_and_damage(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"3 query images \(of 14,218\)"):
        inshop(folder)
    write_partition(folder, count=9)
    with pytest.raises(ValueError, match="8 images, and a first line of '9'"):
        inshop(folder, counts=COUNTS)
    file = folder / "Eval" / "list_eval_partition.txt"
    file.write_text("1\nheader\nimg/a.jpg id_1 val\n")
    with pytest.raises(ValueError, match=r"must be one of .*\['val'\]"):
        inshop(folder, counts=COUNTS)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="without Eval/list_eval"):
        inshop(folder, counts=COUNTS)
