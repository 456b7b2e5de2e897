"""Tests of `keras-dml export`."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

from keras_dml import runs
from keras_dml.cli import main
from keras_dml.cli.commands.export import SUFFIXES
from keras_dml.data import image_folder_splits
from keras_dml.evaluation import embed
from keras_dml.export._export_model import FORMATS
from tests.runs.small_run import write_images


def run(*arguments: Any, code: int = 0) -> str:
    words = [str(x) for x in arguments]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def trained(run_of: Any) -> Path:
    return run_of("baseline").parent


def lookup(export: Path, paths: list[str]) -> dict[str, Any]:
    files = [Path(path).read_bytes() for path in paths]
    signature = tf.saved_model.load(str(export)).signatures["lookup"]
    outputs = signature(images=tf.constant(files))
    return {name: x.numpy() for name, x in outputs.items()}


@pytest.mark.slow
def test_an_index_is_looked_up_in(trained: Path, tmp_path: Path) -> None:
    index, output = tmp_path / "index", tmp_path / "small"
    run("index", trained / "run", "test", "--output", index)
    run("export", trained / "run", "--output", output, "--gallery", index,
        "--k", 1)  # fmt: skip
    images = image_folder_splits(trained / "images").test
    found = lookup(output / "1", [images.paths[i] for i in (0, 7)])
    assert found["ids"][:, 0].tolist() == [0, 7]


@pytest.mark.slow
def test_test_images_are_looked_up(trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "models" / "small"
    printed = run("export", trained / "run", "--output", output, "--gallery",
                  "test", "--k", 2, "--threshold", 0.5,
                  "--models-config")  # fmt: skip
    config = tmp_path / "models" / "models.config"
    assert f"Exported to {output / '1'}" in printed and str(config) in printed
    assert 'name: "small"' in config.read_text()
    images = image_folder_splits(trained / "images").test
    found = lookup(output / "1", [images.paths[i] for i in (0, 7)])
    x = embed(runs.load_model(trained / "run"), images)
    cosines = x[[0, 7]] @ x.T
    assert found["ids"][:, 0].tolist() == [0, 7]
    np.testing.assert_allclose(
        found["scores"], -np.sort(-cosines, axis=1)[:, :2], atol=1e-5
    )
    names = [images.names[int(i)].encode() for i in images.labels]
    assert found["labels"].ravel().tolist() == [
        names[i] for i in found["ids"].ravel()
    ]


@pytest.mark.slow
def test_folders_are_galleries(trained: Path, tmp_path: Path) -> None:
    images = write_images(tmp_path / "own", classes=2, images=3)
    run("export", trained / "run", "--output", tmp_path / "m", "--gallery",
        images, "--k", 6)  # fmt: skip
    labels = lookup(tmp_path / "m/1", [str(next(images.rglob("*.png")))])[
        "labels"
    ]
    assert sorted(labels[0]) == [b"class_00"] * 3 + [b"class_01"] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gallery", "/nowhere"], "/nowhere"),
        (["--gallery", "test", "--k", "1000"], "k=1000, 36 embeddings"),
        (["--format", "onnx", "--output", "x.pb"], "must end in '.onnx'"),
        (["--format", "onnx", "--gallery", "test"], "`gallery` of export"),
        (["--format", "onnx", "--models-config"], "for --format saved_model"),
        (["--overwrite"], "the next version"),
    ],
)
def test_what_cannot_be_exported_is_said(
    arguments: list[str], message: str, trained: Path
) -> None:
    output = run("export", trained / "run", *arguments, code=1)
    assert message in output and "Traceback" not in output


def test_missing_packages_are_said(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    output = run("export", trained / "run", "--format", "onnx", "--output",
                 tmp_path / "x.onnx", code=1)  # fmt: skip
    assert "keras-dml[onnx]" in output


def test_every_format_has_a_suffix() -> None:
    # The command does not import TensorFlow to know them.
    assert tuple(SUFFIXES) == FORMATS
