"""Tests of image folders."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_dml.data import image_folder, image_folder_splits

CALTECH = Path(__file__).parents[3] / "shared" / "data" / "caltech101"


def save(path: Path, value: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4), value, np.uint8)).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for i, name in enumerate(
        ["b/2.png", "b/10.jpg", "B/x.JPEG", "a b/é.bmp", "a b/z.gif"]
    ):
        save(tmp_path / name, i)
    (tmp_path / "b" / "notes.txt").write_text("no image")
    (tmp_path / "b" / "._2.png").write_text("a resource fork")
    (tmp_path / ".hidden").mkdir()
    save(tmp_path / ".hidden" / "1.png")
    save(tmp_path / "b" / "inner" / "1.png")
    (tmp_path / "readme.md").write_text("no image")
    return tmp_path


def test_byte_order(root: Path) -> None:
    images = image_folder(root)
    assert [*images.names.values()] == ["B", "a b", "b"]
    names = [os.path.relpath(path, root) for path in images.paths or ()]
    assert names == [
        "B/x.JPEG",
        "a b/z.gif",
        "a b/é.bmp",
        "b/10.jpg",
        "b/2.png",
    ]
    assert images.labels.tolist() == [0, 1, 1, 2, 2]


def test_files_that_cannot_be_decoded(root: Path) -> None:
    good = (root / "b" / "10.jpg").read_bytes()
    (root / "b" / "11.jpg").write_bytes(good[: len(good) // 2])
    (root / "B" / "12.png").write_bytes(b"")
    message = r"^Image files .* decoded are left out \(2\): "
    with pytest.warns(UserWarning, match=message) as caught:
        images = image_folder(root)
    assert "12.png" in str(caught[0].message)
    assert "11.jpg" in str(caught[0].message)
    assert len(images) == 5
    with pytest.raises(ValueError, match=r"12\.png' cannot be decoded"):
        image_folder(root, unreadable="raise")
    assert len(image_folder(root, verify=False)) == 7


def test_long_lists_are_cut_short(root: Path) -> None:
    for i in range(25):
        (root / "b" / f"bad{i}.png").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"^Image files .*\(25\).* and 5 more"):
        image_folder(root)


def test_empty_classes_are_left_out(root: Path) -> None:
    (root / "aa").mkdir()
    (root / "C").mkdir()
    (root / "C" / "bad.png").write_bytes(b"")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        images = image_folder(root)
    assert [*images.names.values()] == ["B", "a b", "b"]
    assert images.labels.max() == 2
    last = str(caught[-1].message)
    assert last.startswith("Folders without an image")
    assert " (2): " in last
    assert str(root / "aa") in last
    assert str(root / "C") in last


def test_stray_images(root: Path) -> None:
    save(root / "stray.png")
    with pytest.warns(
        UserWarning, match=r"^Images directly .*\(1\): .*stray.png"
    ):
        assert len(image_folder(root)) == 5
    with pytest.raises(ValueError, match="Give the folder above if 'B'"):
        image_folder(root / "B")


def test_no_images_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="which is not there"):
        image_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no image in any folder"):
        image_folder(tmp_path)
    file = tmp_path / "class" / "bad.jpg"
    file.parent.mkdir()
    file.write_bytes(b"bad")
    with pytest.raises(FileNotFoundError, match="which is not one"):
        image_folder(file)
    with (
        pytest.warns(UserWarning, match="cannot be decoded"),
        pytest.warns(UserWarning, match="Folders without an image"),
        pytest.raises(ValueError, match="no image in any folder"),
    ):
        image_folder(tmp_path)
    with pytest.raises(ValueError, match=r"one of \('skip', 'raise'\)"):
        image_folder(tmp_path, unreadable="ignore")


def test_splits(tmp_path: Path) -> None:
    for name in "abcdefg":
        save(tmp_path / name / "1.png")
    splits = image_folder_splits(tmp_path, train_classes=5, seed=2)
    assert splits.name == tmp_path.name
    assert [*splits.test.names.values()] == ["f", "g"]
    assert sorted(splits.trainval.names.values()) == list("abcde")
    assert splits.validation.num_classes == 1


@pytest.mark.skipif(not CALTECH.is_dir(), reason="no Caltech-101 here")
def test_caltech101() -> None:
    splits = image_folder_splits(CALTECH, train_classes=51, verify=False)
    assert splits.trainval.num_classes == 51
    assert splits.test.num_classes == 50
    names = sorted(os.fsencode(x.name) for x in CALTECH.iterdir() if x.is_dir())
    first = os.fsencode(splits.test.names[51])
    assert first == names[51]
