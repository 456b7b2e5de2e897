"""Model files that are damaged or of unknown origin."""

import json
import os
import random
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_dml import backbones
from keras_dml.utils.models import read_model


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("model") / "model.keras"
    layers = [keras.Input((3,)), keras.layers.Dense(4), keras.layers.ReLU()]
    keras.Sequential(layers).save(path)
    return path


def refused(path: Path) -> str:
    with pytest.raises(ValueError) as error:
        read_model(path)
    assert str(error.value).startswith(f"The model file {str(path)!r} cannot")
    return str(error.value)


def test_random_changes_raise_or_are_harmless(
    file: Path, tmp_path: Path
) -> None:
    """Model files have checksums, so whatever loads is unchanged."""
    draw, whole, outcomes = random.Random(0), file.read_bytes(), set()
    x, path = np.ones((1, 3), "float32"), tmp_path / "a.keras"
    before = read_model(file)(x)
    for _ in range(10):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 2)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content[: draw.choice([-9, *4 * [len(content)]])])
        try:
            np.testing.assert_array_equal(read_model(path)(x), before)
            outcomes.add("loads")
        except ValueError as error:
            assert str(path) in str(error)
            outcomes.add("refused")
    assert "refused" in outcomes


@pytest.mark.parametrize("share", [0.3, 0.99])
def test_truncated_file_is_called_damaged(share, file, tmp_path) -> None:
    path = tmp_path / "half.keras"
    content = file.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert "cut off or damaged" in refused(path)
    with pytest.raises(ValueError, match="`backbone`.*cut off or damaged"):
        backbones.get(path)


def test_unfit_files_raise(tmp_path: Path) -> None:
    path = tmp_path / "a.keras"
    path.write_bytes(b"")
    assert "cut off or damaged" in refused(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", '{"class_name": "X"}')
    refused(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="it is a pipe"):
        read_model(path)
    with pytest.raises(FileNotFoundError):
        read_model(tmp_path / "gone.keras")


@pytest.mark.parametrize(
    "changed",
    [
        {"module": "os", "class_name": "system", "registered_name": None},
        {"module": "subprocess", "class_name": "Popen"},
        {"module": "keras.utils", "class_name": "get_file"},
        {"module": "keras.layers", "class_name": "Lambda", "config": {
            "function": {"class_name": "__lambda__", "config": {
                "code": "4wAAAAA=", "defaults": None, "closure": None}}}},
    ],
)  # fmt: skip
def test_no_code_of_a_file_is_run(
    changed: dict[str, object], file: Path, tmp_path: Path, monkeypatch
) -> None:
    def run(*args: object, **kwargs: object) -> None:
        raise SystemExit("It was run.")

    for name in ("os.system", "subprocess.Popen", "keras.utils.get_file"):
        monkeypatch.setattr(name, run)
    path = tmp_path / "a.keras"
    config = {"module": "keras", "class_name": "Sequential", "config": {
        "name": "s", "layers": [{"config": {"name": "x"}, **changed}]},
        "registered_name": None}  # fmt: skip
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json":
                content = json.dumps(config).encode()
            new.writestr(name, content)
    refused(path)
