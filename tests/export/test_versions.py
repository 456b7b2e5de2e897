"""Version folders, and the files left by a failed export."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import keras
import pytest

from keras_dml.export import export_model
from keras_dml.export._export_model import version_folder
from keras_dml.utils.files import new_folder
from tests.export.serving import contents


def test_next_free_version_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "glyphs"
    assert version_folder(folder) == folder / "1"
    folder.mkdir()
    for name in ("9", "10a", ".export-11"):
        (folder / name).mkdir()
    assert version_folder(folder) == folder / "10"


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    before = contents(folder)
    yield
    assert contents(folder) == before


def test_existing_versions_are_kept(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    with unchanged(exported.parent):
        with pytest.raises(FileExistsError, match="next free version"):
            export_model(model, exported)
        with pytest.raises(ValueError, match="SavedModel is never replaced"):
            export_model(model, exported, overwrite=True)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "thesis.tex").write_text("not an export")
    (tmp_path / "2").write_text("not even a folder")
    with unchanged(tmp_path):
        for version in ("1", "2"):
            with pytest.raises(FileExistsError, match="next free version"):
                export_model(model, tmp_path / version)


def test_export_of_another_process_is_kept(tmp_path: Path) -> None:
    theirs = tmp_path / "1" / "saved_model.pb"
    with pytest.raises(OSError), new_folder(tmp_path / "1") as new:
        new.mkdir()
        (new / "saved_model.pb").write_text("ours")
        theirs.parent.mkdir()
        theirs.write_text("theirs")
    assert contents(tmp_path) == {"1": None, "1/saved_model.pb": b"theirs"}


def test_version_appears_only_when_complete(tmp_path: Path) -> None:
    """A killed process leaves a folder whose name starts with a dot."""
    folder = tmp_path / "glyphs"
    (folder / "1").mkdir(parents=True)

    def write(new: Path) -> None:
        new.mkdir()
        (new / "saved_model.pb").write_text("half")
        names = {x.name for x in folder.iterdir()}
        assert [x for x in names if not x.startswith(".")] == ["1"]

    with unchanged(tmp_path), pytest.raises(KeyboardInterrupt):
        with new_folder(folder / "2") as new:
            write(new)
            raise KeyboardInterrupt
    with new_folder(folder / "2") as new:
        write(new)
    assert contents(folder / "2") == {"saved_model.pb": b"half"}


@pytest.mark.slow
def test_full_disk_leaves_old_files(model: keras.Model, exported: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with unchanged(exported.parent):
            with pytest.raises(OSError, match="cannot be written"):
                export_model(model, exported.parent)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
