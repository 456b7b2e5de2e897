"""Tests of the cache folder."""

import sys
from pathlib import Path
from typing import IO

import pytest

from keras_dml.data.cache.folder import cache_folder, write_atomically


def test_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERAS_DML_HOME", str(tmp_path))
    assert cache_folder() == tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="XDG is Linux's")
def test_xdg_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KERAS_DML_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "keras_dml"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "keras_dml"


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "new" / "file"
    write_atomically(file, lambda f: f.write(b"first"))

    def fail(opened: IO[bytes]) -> None:
        opened.write(b"half of the sec")
        assert file.read_bytes() == b"first"
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(file, fail)
    assert file.read_bytes() == b"first"
    assert list(file.parent.iterdir()) == [file]
