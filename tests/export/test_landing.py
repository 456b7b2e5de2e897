"""Tests of where exports land, and of what is there if they do not."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.export import export_model, landing
from tests.export.serving import (
    assert_same,
    contents,
    file_of,
    make_model,
    predict,
    random_images,
    serve,
)


def test_next_free_version_is_used(model: keras.Model, tmp_path: Path) -> None:
    folder = tmp_path / "glyphs"
    assert export_model(model, folder) == folder / "1"
    for name in ("9", "10a", ".export-11"):
        (folder / name).mkdir()
    assert export_model(model, folder) == folder / "10"


def test_overwriting_replaces_the_whole_export(
    model: keras.Model, tmp_path: Path
) -> None:
    path = export_model(model, tmp_path / "1")
    (path / "assets" / "left over").write_text("from the old one")
    images = random_images(2, 16, 16, 1)
    other = make_model()
    assert np.abs(predict(other, images) - predict(model, images)).max() > 0.01
    assert export_model(other, path, overwrite=True) == path
    served = serve(path, [file_of(x) for x in images])["embedding"]
    assert_same(served, predict(other, images))
    assert [x.name for x in tmp_path.iterdir()] == ["1"]
    assert not (path / "assets" / "left over").exists()


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    before = contents(folder)
    yield
    assert contents(folder) == before


def test_what_exists_is_kept(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    with unchanged(exported.parent):
        with pytest.raises(FileExistsError, match="overwrite=True"):
            export_model(model, exported)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "thesis.tex").write_text("not an export")
    (tmp_path / "2").write_text("not even a folder")
    with unchanged(tmp_path):
        for version in ("1", "2"):
            with pytest.raises(FileExistsError, match="another version"):
                export_model(model, tmp_path / version, overwrite=True)


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


def test_full_disk_leaves_what_was_there(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        for target in (exported, tmp_path / "saved_models" / "glyphs" / "1"):
            with unchanged(exported.parent), unchanged(tmp_path):
                with pytest.raises(OSError, match="cannot be written"):
                    export_model(model, target, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_interrupts_leave_what_was_there(
    model: keras.Model, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with unchanged(exported.parent), monkeypatch.context() as patch:
        patch.setattr(landing, "_exchange", interrupted)
        with pytest.raises(KeyboardInterrupt):
            export_model(model, exported, overwrite=True)


@pytest.mark.parametrize("has_call", [True, False])
def test_folders_that_cannot_be_exchanged_are_left_alone(
    has_call: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        def __init__(self, *_: Any, **__: Any) -> None:
            if has_call:
                self.renameat2 = lambda *_: -1

    for name in ("new", "1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    monkeypatch.setattr(landing.ctypes, "CDLL", Library)
    with (
        unchanged(tmp_path),
        pytest.raises(OSError, match="Export another version"),
    ):
        landing.land_folder(tmp_path / "new", tmp_path / "1", overwrite=True)


def test_file_is_free_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    assert landing.free_file(path, ".onnx", overwrite=False) == path
    with pytest.raises(ValueError, match="must end in '.tflite'"):
        landing.free_file(path, ".tflite", overwrite=False)
    path.write_text("there")
    assert landing.free_file(path, ".onnx", overwrite=True) == path
    with pytest.raises(FileExistsError, match="overwrite=True"):
        landing.free_file(path, ".onnx", overwrite=False)
    path.unlink()
    path.mkdir()
    with pytest.raises(FileExistsError, match="Use another path"):
        landing.free_file(path, ".onnx", overwrite=True)
