"""Tests of the export to ONNX Runtime and LiteRT."""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import methods
from keras_dml.data import View
from keras_dml.export import Gallery, export_model
from keras_dml.export.on_tensorflow import read_saved
from keras_dml.export.portable import free_file
from tests.export.serving import (
    contents,
    make_model,
    random_images,
    signatures,
)

# In the converter, and of the interpreter's own parts; nothing of ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PACKAGES = {
    "onnx": ("tf2onnx", "onnxruntime"),
    "litert": ("ai_edge_litert.interpreter",),
}
FILES = {"onnx": "model.onnx", "litert": "model.tflite"}


def run(file_format: str, path: Path, seen: Any, name: str = "images") -> Any:
    if file_format == "onnx":
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(path)
        [result] = session.run(None, {name: seen})
        return result
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    runner = interpreter.Interpreter(str(path)).get_signature_runner()
    return runner(**{name: seen})["embedding"]


@pytest.fixture(params=FILES)
def file_format(request: Any) -> str:
    for package in PACKAGES[request.param]:
        pytest.importorskip(package)
    return request.param


@pytest.mark.slow
def test_embeddings_are_those_of_the_model(
    file_format: str, model: keras.Model, tmp_path: Path, capfd: Any
) -> None:
    path = tmp_path / "models" / FILES[file_format]
    path.parent.mkdir()
    path.write_text("the old one")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        export_model(model, path, format=file_format)
    assert path.read_text() == "the old one"
    given = export_model(model, path, format=file_format, overwrite=True)
    assert given == path
    assert "INFO" not in capfd.readouterr().err
    for count in (1, 5):
        images = random_images(count, 30, 23, 1)
        seen = View.of(model).apply(images).numpy()
        given = run(file_format, path, seen)
        expected = model.predict(seen, verbose=0)
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-5)
        assert given.dtype == np.float32
    # Weights of the embedding, in four bytes each, and nothing of training.
    weights = [*model.backbone.weights, *model.head.weights]
    needed = 4 * sum(np.prod(x.shape) for x in weights)
    assert path.stat().st_size < needed + 20_000
    assert set(contents(path.parent)) == {path.name}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_becomes_float32(
    file_format: str, precision: str, tmp_path: Path
) -> None:
    keras.config.set_dtype_policy(precision)
    model = make_model()
    keras.config.set_dtype_policy("float32")
    whole = make_model()
    whole.set_weights(model.get_weights())
    seen = random_images(3, 16, 16, 1).astype("float32")
    before = model(seen)
    path = export_model(
        model, tmp_path / FILES[file_format], format=file_format
    )
    given = run(file_format, path, seen)
    np.testing.assert_allclose(given, whole(seen), rtol=0, atol=1e-5)
    assert np.abs(given - before).max() > 2e-5
    np.testing.assert_array_equal(model(seen), before)


@pytest.mark.slow
def test_no_activation_is_no_direction(
    file_format: str, tmp_path: Path
) -> None:
    inputs = keras.Input((8, 8, 1))
    x = keras.layers.Conv2D(4, 3, activation="relu", use_bias=False)(inputs)
    black = np.zeros((2, 8, 8, 1), "float32")
    model = methods.baseline(keras.Model(inputs, x), embedding_dim=6)
    path = export_model(
        model, tmp_path / FILES[file_format], format=file_format
    )
    np.testing.assert_array_equal(model(black), np.zeros((2, 6)))
    np.testing.assert_array_equal(run(file_format, path, black), model(black))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:In the future `np.object`")
def test_plain_keras_models_of_numbers(
    file_format: str, tmp_path: Path
) -> None:
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    path = tmp_path / FILES[file_format]
    with pytest.raises(RuntimeError, match=f"{file_format} model differs"):
        # What is equal to the last bit is not within it either.
        export_model(plain, path, format=file_format, tolerance=-1.0)
    assert contents(tmp_path) == {}
    export_model(plain, path, format=file_format)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")
    given = run(file_format, path, x, "inputs")
    np.testing.assert_allclose(given, plain(x), rtol=0, atol=1e-5)


def test_file_is_free_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    assert free_file(path, ".onnx", overwrite=False) == path
    with pytest.raises(ValueError, match="must end in '.tflite'"):
        free_file(path, ".tflite", overwrite=False)
    path.write_text("there")
    assert free_file(path, ".onnx", overwrite=True) == path
    with pytest.raises(FileExistsError, match="overwrite=True"):
        free_file(path, ".onnx", overwrite=False)
    path.unlink()
    path.mkdir()
    with pytest.raises(FileExistsError, match="Use another path"):
        free_file(path, ".onnx", overwrite=True)


@pytest.mark.parametrize("file_format", FILES)
def test_missing_packages_are_named(
    file_format: str,
    model: keras.Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = PACKAGES[file_format][0]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, package.partition(".")[0], None)
    with pytest.raises(ImportError, match=rf"keras-dml\[{file_format}\]"):
        export_model(model, tmp_path / FILES[file_format], format=file_format)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("file_format", FILES)
def test_galleries_are_for_servers(
    file_format: str, model: keras.Model, gallery: Gallery, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="`gallery` of export"):
        export_model(
            model, tmp_path / FILES[file_format], format=file_format,
            gallery=gallery,
        )  # fmt: skip
    with pytest.raises(ValueError, match="must end in"):
        export_model(make_model(), tmp_path / "model", format=file_format)


@keras.saving.register_keras_serializable()
class Doubled(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return 2 * x


@pytest.mark.slow
def test_other_backends_export_in_a_process_on_tensorflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    plain = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4), Doubled()]
    )
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    gallery = Gallery(plain(x).numpy(), list("abcde"))
    export_model(plain, tmp_path / "served", gallery=gallery, k=2)
    inputs = {"inputs": tf.constant(x)}
    found = signatures(tmp_path / "served" / "1")["lookup"](**inputs)
    assert found["labels"].numpy()[:, 0].tolist() == [*map(str.encode, "abcde")]
    with pytest.raises(FileExistsError, match="the next free version"):
        export_model(plain, tmp_path / "served" / "1")


def test_classes_that_cannot_be_imported_are_named(tmp_path: Path) -> None:
    class Hidden(keras.layers.Layer):
        """Known to this process alone."""

    plain = keras.Sequential([keras.Input((3,)), Hidden()])
    plain.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="'Hidden'.*into a module and import"):
        read_saved(tmp_path / "model.keras", [])
    with pytest.raises(ValueError, match="No module named 'hidden'"):
        read_saved(tmp_path / "model.keras", ["hidden"])
