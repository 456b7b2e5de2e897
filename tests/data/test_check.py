"""`check` recognizes folders and names missing files."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

from keras_dml.cli import main
from keras_dml.data import check
from tests.data.archive_files import write_image, write_lines
from tests.data.small_images import photo


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a/1", "a/2", "b/1", "b/2", "c/1", "d/1"):
        write_image(tmp_path / "images" / f"{name}.png")
    return tmp_path


def test_image_folder_is_checked(folder: Path) -> None:
    report = check(folder / "images")
    assert report.loader == "image_folder_splits"
    assert report.splits is not None
    lonely, *copies = report.problems
    assert all("exact copies" in x for x in copies)
    assert lonely.startswith("Test classes with a single image: 2.")
    (folder / "images" / "a" / "3.png").write_bytes(b"bad")
    problems = check(folder / "images").problems
    assert "3.png" in problems[0]


@pytest.mark.parametrize("as_table", [False, True])
def test_exact_copies_are_reported(folder: Path, as_table: bool) -> None:
    """Copies are reported within a class, across classes and across splits."""
    root = folder / "images"
    for i, file in enumerate(sorted(root.glob("*/*.png"))):
        Image.fromarray(photo(20, 20, seed=i)).save(file)
    before = check(root).problems
    for old, new in (("a/1", "a/9"), ("a/2", "b/9"), ("b/1", "d/9")):
        shutil.copy(root / f"{old}.png", root / f"{new}.png")
    place = root
    if as_table:
        place = folder / "table.csv"
        files = sorted(root.glob("*/*.png"))
        splits = {"a": "train", "b": "train", "c": "test", "d": "test"}
        rows = (f"{x},{x.parent.name},{splits[x.parent.name]}" for x in files)
        write_lines(place, ["path,label,split", *rows])
    problems = check(place).problems
    assert not any("copies" in x for x in before)
    within, across, leaks = (x for x in problems if "copies" in x)
    assert within.startswith("Images with exact copies in their class: 2 (")
    assert f"{root / 'a' / '1.png'} = {root / 'a' / '9.png'})" in within
    assert across.startswith("Images with exact copies in other classes: 4 (")
    assert str(root / "b" / "9.png") in across
    assert "both in training and in the test: 2 (" in leaks
    assert f"{root / 'b' / '1.png'} = {root / 'd' / '9.png'})" in leaks


def test_table_is_checked(folder: Path) -> None:
    table = folder / "table.csv"
    paths = ["a/1", "b/1", "c/1", "d/1"]
    rows = (f"images/{x}.png,{x[0]}" for x in paths)
    write_lines(table, ["path,label", *rows])
    report = check(table)
    assert report.loader == "table"
    assert report.splits is not None
    write_lines(table, ["path,class", "a,b"])
    report = check(table)
    assert report.splits is None
    assert "label missing" in report.problems[0]


@pytest.mark.parametrize(
    ("file", "loader", "missing"),
    [
        ("images.txt", "cub200", "image_class_labels.txt"),
        ("cars_annos.mat", "cars196", "car_ims"),
        ("devkit/cars_train_annos.mat", "cars196", "cars_train"),
        ("Ebay_test.txt", "sop", "Ebay_train.txt"),
        ("Eval/list_eval_partition.txt", "inshop", "img"),
        ("train_test_split/train_list.txt", "vehicleid", "test_list_800.txt"),
    ],
)
def test_archives_are_recognized_by_their_lists(
    tmp_path, file, loader, missing
) -> None:
    write_lines(tmp_path / file, [""])
    report = check(tmp_path)
    assert report.loader == loader
    assert report.splits is None
    assert missing in report.problems[0]


def test_command_fails_without_splits(tmp_path: Path) -> None:
    write_lines(tmp_path / "Ebay_train.txt", [""])
    result = CliRunner().invoke(main, ["data", "check", str(tmp_path)])
    assert result.exit_code == 1
    assert "without Ebay_test.txt" in result.output


def test_folder_called_images_is_not_an_archive(folder: Path) -> None:
    report = check(folder)
    assert report.loader == "image_folder_splits"
    assert f"Use path={str(folder / 'images')!r} if" in report.problems[0]
