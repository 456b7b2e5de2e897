"""Tests of the export to ONNX Runtime, LiteRT and OpenVINO."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import methods
from keras_dml.embedding.engines import loader
from keras_dml.export import Gallery, export_model
from keras_dml.export.on_tensorflow import read_saved
from tests.export.serving import (
    contents,
    make_model,
    random_images,
    signatures,
)

# In the converters, and of the interpreter's own parts; nothing of ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PACKAGES = {
    "onnx": ("tf2onnx", "onnxruntime"),
    "litert": ("ai_edge_litert.interpreter",),
    "openvino": ("openvino",),
}
FILES = {
    "onnx": "model.onnx",
    "litert": "model.tflite",
    "openvino": "model.xml",
}
FORMATS = [
    "onnx",
    "litert",
    pytest.param("openvino", marks=pytest.mark.peers),
]

Case = tuple[keras.Model, Any, Any]
"""Model, inputs and the embeddings that its export must return."""


@pytest.fixture(params=FORMATS)
def file_format(request: Any) -> str:
    for package in PACKAGES[request.param]:
        pytest.importorskip(package)
    return request.param


def images() -> Case:
    model, x = make_model(), random_images(5, 16, 16, 1).astype("float32")
    return model, x, model(x)


def half_precision(policy: str) -> Callable[[], Case]:
    def make() -> Case:
        keras.config.set_dtype_policy(policy)
        model = make_model()
        keras.config.set_dtype_policy("float32")
        whole = make_model()
        whole.set_weights(model.get_weights())
        x = random_images(3, 16, 16, 1).astype("float32")
        assert np.abs(model(x) - whole(x)).max() > 2e-5
        return model, x, whole(x)

    return make


def no_activation() -> Case:
    inputs = keras.Input((8, 8, 1))
    x = keras.layers.Conv2D(4, 3, activation="relu", use_bias=False)(inputs)
    model = methods.baseline(keras.Model(inputs, x), embedding_dim=6)
    return model, np.zeros((2, 8, 8, 1), "float32"), np.zeros((2, 6))


def numbers() -> Case:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    x = np.random.default_rng(0).normal(size=(2, 3)).astype("float32")
    return model, x, model(x)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:In the future `np.object`")
@pytest.mark.parametrize(
    "make",
    [
        images,
        half_precision("mixed_float16"),
        half_precision("mixed_bfloat16"),
        no_activation,
        numbers,
    ],
)
def test_file_embeds_like_its_model(
    file_format: str, make: Callable[[], Case], tmp_path: Path, capfd: Any
) -> None:
    model, x, expected = make()
    before = np.asarray(model(x))
    path = export_model(
        model, tmp_path / FILES[file_format], format=file_format
    )
    assert "INFO" not in capfd.readouterr().err
    run = loader(file_format, "a test")(path)
    for count in (1, len(x)):
        outputs = run(x[:count])
        np.testing.assert_allclose(outputs, expected[:count], rtol=0, atol=1e-5)
        assert outputs.dtype == np.float32
    np.testing.assert_array_equal(model(x), before)
    # Weights of the embedding, in four bytes each, and nothing of training.
    parts = getattr(model, "backbone", model), getattr(model, "head", model)
    weights = {x.path: np.prod(x.shape) for part in parts for x in part.weights}
    size = sum(len(x) for x in contents(tmp_path).values())
    assert size < 4 * sum(weights.values()) + 60_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:In the future `np.object`")
def test_file_is_replaced_only_by_an_equal_model(
    file_format: str, tmp_path: Path
) -> None:
    model, _, _ = numbers()
    path = tmp_path / FILES[file_format]
    with pytest.raises(ValueError, match=f"must end in '{path.suffix}'"):
        export_model(model, path.with_suffix(".h5"), format=file_format)
    path.mkdir()
    with pytest.raises(FileExistsError, match="Use another path"):
        export_model(model, path, format=file_format, overwrite=True)
    path.rmdir()
    path.write_text("the old one")
    for options, error, message in (
        ({}, FileExistsError, "overwrite=True"),
        # Even what is equal to the last bit is not within this tolerance.
        (
            {"overwrite": True, "tolerance": -1.0},
            RuntimeError,
            f"{file_format} model differs",
        ),
    ):
        with pytest.raises(error, match=message):
            export_model(model, path, format=file_format, **options)
        assert contents(tmp_path) == {path.name: b"the old one"}
    export_model(model, path, format=file_format, overwrite=True)
    assert path.read_bytes() != b"the old one"


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
    hits = signatures(tmp_path / "served" / "1")["lookup"](**inputs)
    assert hits["labels"].numpy()[:, 0].tolist() == [*map(str.encode, "abcde")]
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
