"""Tests of the cache folder."""

import sys
from pathlib import Path

import pytest

from keras_dml.data.caching import cache_folder


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
