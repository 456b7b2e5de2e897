"""Files of images, and where they are kept decoded."""

from pathlib import Path

import pytest

from keras_dml.data import ImageSet
from tests.data.cached import write


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("KERAS_DML_HOME", str(folder))
    return folder / "decoded"


@pytest.fixture
def mixed(tmp_path: Path) -> ImageSet:
    return write(tmp_path, [(30, 24), (24, 24), (60, 31)])


@pytest.fixture
def alike(tmp_path: Path) -> ImageSet:
    return write(tmp_path, [(40, 30)])
