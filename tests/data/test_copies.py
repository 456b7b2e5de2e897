"""Tests of copies: exact and near ones, within a data set and across splits."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from keras_dml import recipes, runs
from keras_dml.cli import main
from keras_dml.data import DataSplits, ImageSet, check, table
from keras_dml.data.copies import leaks
from keras_dml.data.hashing import equal_contents
from tests.data.archive_files import write_lines
from tests.data.small_images import photo
from tests.runs.small_run import write_recipe

CLASSES = "abcdefgh"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Eight classes of three photographs, and one of flat gray images."""
    for i, name in enumerate(CLASSES):
        for j in range(3):
            path = tmp_path / "images" / name / f"{j}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(photo(60, 80, seed=3 * i + j)).save(path)
    for j, gray in enumerate((30, 130, 230)):
        path = tmp_path / "images" / "z" / f"{j}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("L", (80, 60), gray).save(path)
    return tmp_path / "images"


def changed(change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., None]:
    def copy(old: Path, new: Path) -> None:
        pixels = change(np.asarray(Image.open(old), np.int64))
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        image.save(new.with_suffix(".png"))

    return copy


def saved(kind: str, **options: object) -> Callable[[Path, Path], None]:
    def copy(old: Path, new: Path) -> None:
        with Image.open(old) as image:
            image.save(new.with_suffix(f".{kind}"), **options)

    return copy


NOISE = np.random.default_rng(0).normal(0, 8, (60, 80, 3))

COPIES: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "the file": ("exact", lambda x, y: shutil.copy(x, y.with_suffix(".png"))),
    "as BMP": ("exact", saved("bmp")),
    "as TIFF": ("exact", saved("tiff")),
    "as WebP": ("exact", saved("webp", lossless=True)),
    "as JPEG": ("near", saved("jpg", quality=90)),
    "as a bad JPEG": ("near", saved("jpg", quality=30)),
    "brighter": ("near", changed(lambda x: x + 2)),
    "with noise": ("near", changed(lambda x: x + NOISE)),
    "half the size": ("near", changed(lambda x: x[::2, ::2])),
    "gray": ("near", changed(lambda x: x @ [0.299, 0.587, 0.114])),
    "mirrored": ("", changed(lambda x: x[:, ::-1])),
    "upside down": ("", changed(lambda x: x[::-1])),
}


@pytest.mark.parametrize("place", ["a/new", "b/new", "h/new"])
@pytest.mark.parametrize("name", COPIES)
def test_copies_are_listed_in_groups_by_kind(root, name, place) -> None:
    kind, copy = COPIES[name]
    assert check(root).copies == ()
    copy(root / "a" / "0.png", root / place)
    findings = check(root)
    [new] = root.glob(f"{place}.*")
    expected = {str(root / "a" / "0.png"), str(new)}
    groups = [(x.kind, {y.path for y in x.images}) for x in findings.copies]
    assert groups == ([(kind, expected)] if kind else [])
    said = [x for x in findings.problems if "copies" in x]
    where = {
        "a/new": ["in their class: 2"],
        "b/new": ["in other classes: 2"],
        "h/new": ["in other classes: 2", "both in training and in the test: 2"],
    }[place]
    starts = [f"Images with {kind} copies {x} (" for x in where if kind]
    assert len(said) == len(starts)
    assert all(x.startswith(y) for x, y in zip(said, starts, strict=True))


def splits_of(root: Path, kind: str) -> DataSplits:
    """Splits of the classes a, b and c to train, d and e to hold out."""
    files = sorted(root.glob("*/*"))
    split = {
        **dict.fromkeys("abc", "train"),
        **dict.fromkeys("de", "validation"),
    }
    if kind == "table":
        lines = [
            f"{x},{x.parent.name},{split.get(x.parent.name, 'test')}"
            for x in files
        ]
        write_lines(root.parent / "table.csv", ["path,label,split", *lines])
        return table(root.parent / "table.csv")
    images = ImageSet(files, [x.parent.name for x in files])
    parts = np.array([split.get(x.parent.name, "test") for x in files])
    names = "train", "validation", "test"
    return DataSplits(*(images.select(parts == x) for x in names), "own")


@pytest.mark.parametrize("kind", ["table", "sets"])
@pytest.mark.parametrize(
    ("folders", "words"),
    [
        ("ad", "5 of the 11 validation images are exact copies of training"),
        ("af", "5 of the 17 test images are exact copies of training images"),
        ("dh", "5 of the 17 test images are exact copies of validation images"),
        ("da", "3 of the 6 validation images are exact copies of training"),
        ("ab", None),
        ("fg", None),
    ],
)
def test_leaks_name_both_splits_and_files(root, kind, folders, words) -> None:
    assert [*leaks(splits_of(root, kind))] == []
    old, new = folders
    for i in range(5):
        source = root / old / f"{i % 3}.png"
        shutil.copy(source, root / new / f"{10 + i}.png")
    said = [*leaks(splits_of(root, kind))]
    assert len(said) == (words is not None)
    if words:
        assert said[0].startswith(words)
        assert str(root / old / "0.png") in said[0]
        assert str(root / new / "10.png") in said[0]
        assert "`keras-dml data check RECIPE`" in said[0]


def test_unreadable_files_are_not_copies(root) -> None:
    splits = splits_of(root, "sets")
    for name in ("a/0", "f/0"):
        (root / f"{name}.png").unlink()
    for name in ("a/1", "f/1"):
        (root / f"{name}.png").write_bytes(b"")
    assert ["1 of the"] == [x[:8] for x in leaks(splits)]


@pytest.mark.parametrize("seed", range(3))
def test_equal_contents_compare_whole_files(tmp_path, seed) -> None:
    rng = np.random.default_rng(seed)
    contents = []
    for i in range(60):
        content = bytearray(int(rng.choice([0, 1, 700, 5000])))
        # Some differ at the start, in the middle, or at the end alone.
        if content and rng.random() < 0.7:
            content[int(rng.choice([0, len(content) // 2, -1]))] = 1
        contents.append(bytes(content))
        (tmp_path / str(i)).write_bytes(content)
    numbers = equal_contents(ImageSet([tmp_path / str(i) for i in range(60)]))
    same = np.array([[x == y for x in contents] for y in contents])
    np.testing.assert_array_equal(numbers[:, None] == numbers, same)


def test_check_of_a_table_names_files_that_cannot_be_decoded(root) -> None:
    splits_of(root, "table")
    (root / "a" / "0.png").write_bytes(b"bad")
    problems = check(root.parent / "table.csv").problems
    assert any("a/0.png' cannot be decoded" in x for x in problems)


def test_check_and_train_report_leaks_of_a_recipe(tmp_path, caplog) -> None:
    recipe = write_recipe(tmp_path)
    images = tmp_path / "images"
    for file in sorted((images / "class_00").iterdir())[:4]:
        shutil.copy(file, images / "class_11" / f"copy_{file.name}")
    settings = "data.train_classes=11", "data.validation=0.1", "epochs=1"
    arguments = [x for setting in settings for x in ("--set", setting)]
    ended = CliRunner().invoke(
        main, ["data", "check", str(recipe), *arguments, "--json"]
    )
    assert ended.exit_code == 0, ended.output
    answer = json.loads(ended.stdout)
    assert answer["splits"]["test"]["classes"] == 1
    groups = [x["images"] for x in answer["copies"] if x["kind"] == "exact"]
    assert [{y["label"] for y in x} for x in groups] == [
        {"class_00", "class_11"}
    ] * 4
    with (
        pytest.raises(RuntimeError, match="enough"),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(
            "keras_dml.recipes.schema.Recipe.training", lambda *_, **__: stop()
        )
        with caplog.at_level(logging.WARNING):
            runs.train(recipes.load(recipe, settings), tmp_path / "run", 0)
    assert any(
        "4 of the 10 test images are exact" in x for x in caplog.messages
    )


def stop() -> None:
    raise RuntimeError("That is enough.")


def test_settings_for_a_folder_raise(tmp_path) -> None:
    command = ["data", "check", str(tmp_path), "--set", "epochs=1"]
    ended = CliRunner().invoke(main, command)
    assert ended.exit_code == 2
    assert "--set is for recipes" in ended.output
