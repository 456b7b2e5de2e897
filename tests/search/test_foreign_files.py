"""A save touches only files of its own index."""

import os
from pathlib import Path

import numpy as np
import pytest

from keras_dml.search import Index, is_index

X = np.random.default_rng(0).normal(size=(20, 6))


def contents(folder: Path) -> dict[str, bytes]:
    """All files at and below a folder, of links what they point to."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"years of {name}")


FOLDERS = [
    ["thesis.txt"],
    ["data/photo1.jpg", "data/photo2.jpg", "data/labels.csv"],
    ["data/a.jpg", "data/photos/b.jpg", "data/z.jpg"],
    ["index.json", "data/a.csv"],
    [f"data/{'0' * 16}-vectors.faiss"],  # It looks like ours.
    [".git/config"],
]


@pytest.mark.parametrize("overwrite", [False, True])
def test_folder_without_an_index_is_left_alone(overwrite, tmp_path) -> None:
    for number, names in enumerate(FOLDERS):
        folder = tmp_path / str(number)
        write(folder, *names)
        before = contents(folder)
        with pytest.raises(FileExistsError, match="Nothing was written. Use"):
            Index(X).save(folder, overwrite=overwrite)
        assert contents(folder) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_beside_an_index_stop_the_save(overwrite, tmp_path) -> None:
    for name in ("notes.txt", "data/a.csv", "data/b/c.jpg"):
        folder, index = tmp_path / name[-5:], Index(X)
        index.save(folder)
        write(folder, name)
        before = contents(folder)
        index.remove(0)
        with pytest.raises(FileExistsError, match=r"notes.txt|data/(a|b)"):
            index.save(folder, overwrite=overwrite)
        assert contents(folder) == before
        assert len(Index.load(folder)) == 20


def test_damaged_index_is_not_replaced(tmp_path) -> None:
    Index(X).save(tmp_path)
    text = (tmp_path / "index.json").read_text()
    (tmp_path / "index.json").write_text(text.replace('"dim": 6', '"dim": 7'))
    before = contents(tmp_path)
    with pytest.raises(FileExistsError, match="checksum is wrong"):
        Index(X).save(tmp_path, overwrite=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["data", "index.json", ".lock"])
def test_links_inside_an_index_stop_the_save(name, tmp_path) -> None:
    folder, elsewhere = tmp_path / "i", tmp_path / "elsewhere"
    Index(X).save(folder)
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    before = contents(tmp_path)
    index = Index.load(folder)
    index.add(X[:1])
    with pytest.raises(FileExistsError, match="is a link"):
        index.save(folder)
    assert (folder / name).is_symlink()
    assert contents(tmp_path) == before


def test_link_to_a_folder_or_its_vectors_stops_the_save(tmp_path) -> None:
    index = Index(X)
    index.save(tmp_path / "i")
    (tmp_path / "link").symlink_to(tmp_path / "i")
    with pytest.raises(FileExistsError, match="is a link"):
        index.save(tmp_path / "link", overwrite=True)
    assert len(Index.load(tmp_path / "link")) == 20
    vectors = next((tmp_path / "i" / "data").glob("*.faiss"))
    vectors.rename(tmp_path / "mine")
    vectors.symlink_to(tmp_path / "mine")
    with pytest.raises(FileExistsError, match="vectors.faiss"):
        index.save(tmp_path / "i", overwrite=True)
    assert (tmp_path / "mine").exists()


def test_failed_first_save_leaves_no_index(tmp_path, monkeypatch) -> None:
    from keras_dml.search.engine import Engine

    def full(self, path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "write", full)
        with pytest.raises(OSError, match="No space"):
            Index(X).save(tmp_path)
    assert not is_index(tmp_path)
    assert list((tmp_path / "data").iterdir()) == []
    Index(X).save(tmp_path)
    assert len(Index.load(tmp_path)) == 20


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_manifest_must_be_a_file(kind, tmp_path) -> None:
    path = tmp_path / "index.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(OSError, match=r"not a file: '.*index\.json'"):
        Index.load(tmp_path)
