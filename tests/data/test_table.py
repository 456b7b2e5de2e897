"""Tests of tables of images."""

import os
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from keras_dml.data import table
from tests.data.archive_files import write_image

CLASSES = ["cat", "ant", "bee", "dog", "eel", "fox"]


def write(folder: Path, text: str, name: str = "birds.csv") -> Path:
    """Writes a table and every image that it may list."""
    for i in range(12):
        write_image(folder / "images" / f"{i}.png")
    file = folder / name
    file.write_text(text, encoding="utf-8-sig")
    return file


def rows(header: str, *columns: Any) -> str:
    lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\r\n".join([header, *lines]) + "\r\n"


PATHS = [f"images/{i}.png" for i in range(12)]


def test_classes_split_in_the_order_of_their_texts(tmp_path: Path) -> None:
    file = write(tmp_path, rows("label, path ,note", CLASSES * 2, PATHS, PATHS))
    splits = table(file, validation=0.34)
    assert splits.name == "birds"
    assert sorted(splits.trainval.names.values()) == ["ant", "bee", "cat"]
    assert splits.validation.num_classes == 1
    assert [*splits.test.names.values()] == ["dog", "eel", "fox"]
    assert splits.test.ids == tuple(
        f"images/{i}.png" for i in (3, 4, 5, 9, 10, 11)
    )
    assert splits.test.labels.tolist() == [3, 4, 5] * 2
    assert splits.test.read(0).shape == (9, 12, 3)
    assert splits.query_rows is None
    assert table(file, train_classes=5).test.num_classes == 1


def test_groups_are_held_out_together(tmp_path: Path) -> None:
    kinds = ["mammal", "insect", "insect", "mammal", "fish", "mammal"] * 2
    text = rows("path,label,kind", PATHS, CLASSES * 2, kinds)
    file = write(tmp_path, text)
    options = {"train_classes": 5, "held_out_by": "kind"}
    held_out = {
        tuple(table(file, seed=seed, **options).validation.classes)
        for seed in range(8)
    }
    # In the order of their texts: ant and bee; cat and dog; eel.
    assert held_out == {(0, 1), (2, 3), (4,)}
    with pytest.raises(ValueError, match="kinds missing"):
        table(file, held_out_by="kinds")


def test_group_columns_go_with_the_images(tmp_path: Path) -> None:
    kinds = ["mammal", "insect", "insect", "mammal", "fish", "mammal"] * 2
    text = rows("path,label,kind", PATHS, CLASSES * 2, kinds)
    splits = table(write(tmp_path, text), groups=["kind"], validation=0)
    # In the order of their texts: fish, insect, mammal.
    assert splits.train.ids == tuple(
        f"images/{i}.png" for i in (0, 1, 2, 6, 7, 8)
    )
    assert splits.train.groups["kind"].tolist() == [2, 1, 1] * 2
    assert splits.test.groups["kind"].tolist() == [2, 0, 2] * 2
    with pytest.raises(ValueError, match="kind2 missing"):
        table(tmp_path / "birds.csv", groups=["kind2"])


def test_integers_are_the_labels(tmp_path: Path) -> None:
    big = 2**53
    labels = [30, 9, -1, big, big + 1, 100] * 2
    splits = table(write(tmp_path, rows("path,label", PATHS, labels)))
    assert splits.trainval.classes.tolist() == [-1, 9, 30]
    assert splits.test.classes.tolist() == [100, big, big + 1]
    assert not splits.test.names
    # 007 is not 7.
    labels = ["007", "7", "8", "9", "5", "6"] * 2
    splits = table(write(tmp_path, rows("path,label", PATHS, labels)))
    names = {*splits.trainval.names.values(), *splits.test.names.values()}
    assert names == {"007", "7", "8", "9", "5", "6"}


def test_split_column_and_cameras_are_read(tmp_path: Path) -> None:
    split = ["train"] * 4 + ["query", "gallery", "test", "query"]
    labels = [1, 1, 2, 3, 4, 4, 5, 5]
    cameras = ["c9"] * 4 + ["c2", "c10", "c2", "c1"]
    text = rows("path,label,split,camera", PATHS[:8], labels, split, cameras)
    splits = table(write(tmp_path, text))
    assert splits.trainval.classes.tolist() == [1, 2, 3]
    assert splits.validation.num_classes == 1
    assert splits.test.labels.tolist() == [4, 4, 5, 5]
    assert splits.query_rows.tolist() == [0, 2, 3]
    assert splits.gallery_rows.tolist() == [1, 2]
    first, second, third, fourth = splits.cameras
    assert first == third
    assert len({first, second, fourth}) == 3


def test_validation_rows_are_kept(tmp_path: Path) -> None:
    split = ["train", "train", "validation", "test"] * 3
    labels = [1, 2, 3, 4] * 3
    text = rows("path,label,split", PATHS, labels, split)
    splits = table(write(tmp_path, text))
    assert splits.train.classes.tolist() == [1, 2]
    assert splits.validation.classes.tolist() == [3]
    assert splits.test.classes.tolist() == [4]
    with pytest.raises(ValueError, match="`held_out_by` .* validation rows"):
        table(tmp_path / "birds.csv", held_out_by="label")


def test_root_and_tabs_are_supported(tmp_path: Path) -> None:
    names = [f"{i}.png" for i in range(12)]
    text = rows("path,label", names, CLASSES * 2).replace(",", "\t")
    file = write(tmp_path, text, "birds.tsv")
    assert len(table(file, root=tmp_path / "images").test) == 6
    with pytest.raises(FileNotFoundError, match="12 of the 12 images"):
        table(file)


def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    file = write(tmp_path, "", "birds.csv").with_suffix(".parquet")
    columns = {"path": PATHS, "label": [5, 6, 7, 8, 9, 10] * 2}
    parquet.write_table(pyarrow.table(columns), file)
    splits = table(file)
    assert splits.test.classes.tolist() == [8, 9, 10]
    columns["label"][4] = None  # type: ignore[call-overload]
    parquet.write_table(pyarrow.table(columns), file)
    with pytest.raises(ValueError, match="empty cell in row 5"):
        table(file)


TWO = "images/0.png,1,train\nimages/1.png,2,train\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,class\na,b\n", "Received: path, class; label missing"),
        ("", "Received: none; path, label missing"),
        ("path,label\n", "no rows"),
        ("path,label\na,1\nb\n", "`label` .* empty cell in row 2"),
        ("path,label\na,1\n ,2\n", "`path` .* empty cell in row 2"),
        ("path,path,label\na,b,c\n", "path more than once"),
        ("path,label\na,1\nb,2,3\n", "Line 3 .* must have 2 columns"),
        (f"path,label,split\n{TWO}images/2.png,3,tets\n", "'tets' in row 3"),
        (f"path,label,split\n{TWO}", "rows for training and rows for test"),
        (f"path,label,split\n{TWO}images/2.png,1,test\n", "share a class"),
        ("path,label\nimages/0.png,1\nimages/1.png,1\n", "`train_classes`"),
    ],
)
def test_unfit_tables_raise(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table(write(tmp_path, text))


def test_unreadable_table_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="which does not exist"):
        table(tmp_path / "a.csv")
    with pytest.raises(ValueError, match=r"must end in one of .*a\.xlsx"):
        table(tmp_path / "a.xlsx")
    (tmp_path / "a.csv").write_bytes("path,label\na,é".encode("latin-1"))
    with pytest.raises(ValueError, match="UTF-8 text"):
        table(tmp_path / "a.csv")
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match="must be a Parquet file"):
        table(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", ["pipe", "nowhere"])
def test_rows_without_a_file_raise(kind: str, tmp_path: Path) -> None:
    """Opening a pipe would block forever."""
    file = write(tmp_path, rows("path,label", PATHS, CLASSES * 2))
    odd = tmp_path / PATHS[3]
    odd.unlink()
    if kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match=r"or are not files, .*3\.png"):
        table(file)
    # Links to images are images.
    odd.unlink()
    odd.symlink_to(tmp_path / PATHS[4])
    assert len(table(file).test) == 6
