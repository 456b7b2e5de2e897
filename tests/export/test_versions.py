"""Tests of versions, and of what is there when an export fails."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from keras_dml.export import export_model, parity
from keras_dml.export.versions import version_folder
from tests.export.serving import contents


@pytest.mark.slow
def test_next_free_version_is_used(model: keras.Model, tmp_path: Path) -> None:
    folder = tmp_path / "glyphs"
    assert version_folder(folder) == folder / "1"
    folder.mkdir()
    for name in ("9", "10a", ".export-11"):
        (folder / name).mkdir()
    assert export_model(model, folder) == folder / "10"


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    before = contents(folder)
    yield
    assert contents(folder) == before


def test_what_exists_is_kept(
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


@pytest.mark.slow
def test_export_of_another_process_is_kept(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "1" / "saved_model.pb"
    load = tf.saved_model.load

    def load_while_another_exports(*args: Any) -> Any:
        theirs.parent.mkdir()
        theirs.write_text("theirs")
        return load(*args)

    monkeypatch.setattr(tf.saved_model, "load", load_while_another_exports)
    with pytest.raises(OSError):
        export_model(model, tmp_path / "1")
    assert contents(tmp_path) == {"1": None, "1/saved_model.pb": b"theirs"}


@pytest.mark.slow
def test_full_disk_leaves_what_was_there(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        for target in (exported.parent, tmp_path / "saved_models" / "glyphs"):
            with unchanged(exported.parent), unchanged(tmp_path):
                with pytest.raises(OSError, match="cannot be written"):
                    export_model(model, target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
def test_interrupts_leave_what_was_there(
    model: keras.Model, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with unchanged(exported.parent), monkeypatch.context() as patch:
        patch.setattr(parity, "compare", interrupted)
        with pytest.raises(KeyboardInterrupt):
            export_model(model, exported.parent)
