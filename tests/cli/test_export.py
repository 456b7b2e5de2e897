"""Tests of `keras-dml export`."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

from keras_dml import runs
from keras_dml.cli import main
from keras_dml.cli.commands import export as command
from keras_dml.cli.common import on_tensorflow
from keras_dml.data import image_folder_splits
from keras_dml.evaluation import embed, evaluate_embeddings
from keras_dml.export._export_model import FORMATS
from keras_dml.search import Index
from tests.cli.test_commands import run
from tests.runs.small_run import write_images


@pytest.fixture(scope="module")
def trained(run_of: Any) -> Path:
    return run_of("baseline").parent


def lookup(export: str, paths: list[str]) -> dict[str, Any]:
    files = [Path(path).read_bytes() for path in paths]
    signature = tf.saved_model.load(str(export)).signatures["lookup"]
    outputs = signature(images=tf.constant(files))
    return {name: x.numpy() for name, x in outputs.items()}


@pytest.mark.slow
def test_exported_gallery_is_searched_in_the_next_version(
    trained: Path, tmp_path: Path
) -> None:
    output = tmp_path / "models" / "small"
    (output / "1").mkdir(parents=True)
    command = ["export", trained / "run", "--output", output, "--gallery",
               "test", "--k", 2, "--threshold", 0.5, "--json"]  # fmt: skip
    ended = CliRunner().invoke(main, list(map(str, command)))
    answer = json.loads(ended.stdout)
    assert answer["model"] == str(output / "2")
    assert f"Exported to {output / '2'}" in ended.stderr
    images = image_folder_splits(trained / "images").test
    hits = lookup(answer["model"], [images.paths[i] for i in (0, 7)])
    x = embed(runs.load_model(trained / "run"), images)
    cosines = x[[0, 7]] @ x.T
    assert hits["ids"][:, 0].tolist() == [0, 7]
    np.testing.assert_allclose(
        hits["scores"], -np.sort(-cosines, axis=1)[:, :2], atol=1e-5
    )
    names = [images.names[int(i)].encode() for i in images.labels]
    assert hits["labels"].ravel().tolist() == [
        names[i] for i in hits["ids"].ravel()
    ]


@pytest.mark.slow
def test_gallery_may_be_an_index_a_folder_or_a_split(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    galleries = []

    def export_model(model: Any, path: Path, *, gallery: Any, **_: Any) -> Path:
        galleries.append(gallery)
        return path

    monkeypatch.setattr("keras_dml.export.export_model", export_model)
    Index(np.eye(8)).save(tmp_path / "index")
    images = write_images(tmp_path / "own", classes=2, images=3)
    for gallery in (tmp_path / "index", images, "train"):
        run("export", trained / "run", "--gallery", gallery)
    index, folder, train = galleries
    assert isinstance(index, Index) and len(index) == 8
    assert folder.names == {0: "class_00", 1: "class_01"} and len(folder) == 6
    assert len(train) == 24


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gallery", "/nowhere"], "/nowhere"),
        (["--gallery", "test", "--k", "1000"], "k=1000, 36 embeddings"),
        (["--format", "onnx", "--output", "x.pb"], "must end in '.onnx'"),
        (["--overwrite"], "the next version"),
        (["--quantize", "int8"], "for --format onnx, litert and openvino"),
        (["--format", "onnx", "--tolerance", "0.1"], "is for --quantize"),
    ],
)
def test_unfit_export_raises(
    arguments: list[str], message: str, trained: Path
) -> None:
    output = run("export", trained / "run", *arguments, code=1)
    assert message in " ".join(output.split()) and "Traceback" not in output


def test_export_beyond_its_tolerance_raises(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten pairs, one more query has lost its nearest neighbor."""
    labels = np.repeat(np.arange(10), 2)
    moved = np.eye(10)[labels]
    moved[0] = moved[2] + 0.1
    before, after = (
        evaluate_embeddings(x, labels) for x in (np.eye(10)[labels], moved)
    )
    calibrations, queries = [], []

    def export_model(model: Any, path: Path, **options: Any) -> Path:
        assert options["quantize"] == "int8"
        calibrations.append({*options["calibration"].labels.tolist()})
        path.write_text("new")
        return path

    def evaluate(model: Any, x: Any, engine: Any = None, **_: Any) -> Any:
        assert engine is None or engine.read_text() == "new"
        queries.append({*x.labels.tolist()})
        return before if engine is None else after

    monkeypatch.setattr("keras_dml.export.export_model", export_model)
    monkeypatch.setattr("keras_dml.evaluation.evaluate", evaluate)
    path = tmp_path / "model.onnx"
    path.write_text("old")
    command = ["export", trained / "run", "--format", "onnx", "--output", path,
               "--overwrite", "--quantize", "int8"]  # fmt: skip
    loss = before["recall@1"] - after["recall@1"]
    assert 0.05 < loss < 0.2
    output = " ".join(run(*command, code=1).split())
    assert f"loses {loss:.4f} of recall@1" in output
    assert "--tolerance of 0.01" in output
    assert path.read_text() == "old" and [*tmp_path.iterdir()] == [path]
    output = " ".join(run(*command, "--tolerance", 0.2).split())
    assert f"recall@1 -{loss:.4f}" in output
    assert path.read_text() == "new" and [*tmp_path.iterdir()] == [path]
    assert calibrations[0].isdisjoint(queries[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_cost_of_a_quantized_export_is_measured(
    trained: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    path = tmp_path / "model.tflite"
    command = ["export", trained / "run", "--format", "litert", "--output",
               path, "--quantize", "int8", "--tolerance", 1,
               "--json"]  # fmt: skip
    ended = CliRunner().invoke(main, list(map(str, command)))
    assert ended.exit_code == 0, ended.output
    answer = json.loads(ended.stdout)
    difference = answer["int8"]["map@r"] - answer["float32"]["map@r"]
    assert answer["cost"]["map@r"]["estimate"] == pytest.approx(difference)


def test_command_offers_every_format() -> None:
    # It does not import TensorFlow for that.
    assert command.FORMATS == FORMATS


def test_tensorflow_is_chosen_before_keras_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = on_tensorflow(lambda: os.environ["KERAS_BACKEND"])
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert chosen() == "jax"
    monkeypatch.delitem(sys.modules, "keras")
    assert chosen() == "tensorflow"
