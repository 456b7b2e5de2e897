"""Exports whose networks compute in 8-bit integers."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_dml import backbones, methods
from keras_dml.data import ImageSet
from keras_dml.evaluation import embed
from keras_dml.export import export_model, measure_cost
from keras_dml.export.quantized import calibration_views, check_unit, head_of
from tests.export.serving import contents

# In the converters and of the interpreter's own parts; nothing of ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

FILES = {
    "onnx": "model.onnx",
    "litert": "model.tflite",
    "openvino": "model.xml",
}
PACKAGES = {
    "onnx": ("tf2onnx", "onnxruntime"),
    "litert": ("ai_edge_litert.interpreter",),
}


def striped(count: int = 120, size: int = 16) -> ImageSet:
    """Stripes of four angles, each a class, in noise."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 4
    y, x = np.mgrid[:size, :size]
    angles = labels[:, None, None] * np.pi / 4
    waves = np.sin(x * np.cos(angles) + y * np.sin(angles))
    noise = rng.normal(size=(count, size, size))
    pixels = np.clip(128 + 60 * waves + 20 * noise, 0, 255)
    return ImageSet(pixels[..., None].astype(np.uint8), labels)


def make(pooling: Any = "avg") -> keras.Model:
    keras.utils.set_random_seed(0)
    network = backbones.small_convnet((16, 16, 1), filters=(32, 64, 128))
    model = methods.baseline(network, embedding_dim=16, pooling=pooling)
    for layer in network._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            # As after training: of channels that differ.
            rng = np.random.default_rng(layer.gamma.shape[0])
            layer.gamma.assign(rng.uniform(0.5, 1.5, layer.gamma.shape))
            layer.beta.assign(rng.normal(0, 0.1, layer.beta.shape))
    return model


@pytest.fixture(params=["onnx", "litert"])
def file_format(request: Any) -> str:
    for package in PACKAGES[request.param]:
        pytest.importorskip(package)
    return request.param


@pytest.mark.slow
def test_the_network_is_in_integers_and_the_head_is_not(
    file_format: str, tmp_path: Path
) -> None:
    check_route(file_format, tmp_path)


@pytest.mark.slow
@pytest.mark.peers
def test_openvino_too(tmp_path: Path, capfd: Any) -> None:
    pytest.importorskip("nncf")
    check_route("openvino", tmp_path)
    assert capfd.readouterr().out == ""


def check_route(file_format: str, folder: Path) -> None:
    model, images = make("gem"), striped()
    exact = export_model(
        model, folder / f"exact_{FILES[file_format]}", format=file_format
    )
    path = folder / FILES[file_format]
    export_model(
        model, path, format=file_format, quantize="int8", calibration=images
    )
    expected = embed(model, images)
    np.testing.assert_allclose(
        embed(model, images, engine=exact), expected, rtol=0, atol=1e-5
    )
    found = embed(model, images, engine=path)
    # Eight bits cannot be equal, or nothing was quantized.
    assert np.abs(found - expected).max() > 1e-4
    norms = np.linalg.norm(found.astype(float), axis=1)
    np.testing.assert_allclose(norms, 1, rtol=0, atol=1e-6)
    assert (found * expected).sum(axis=1).min() > 0.99
    assert size(path) < 0.5 * size(exact)
    # A head in integers has at most 256 values for all of its outputs.
    assert len(np.unique(found)) > 1000
    cost = measure_cost(model, path, images)
    assert cost.model["recall@1"] - cost.export["recall@1"] < 0.05
    assert 0.5 < cost.unchanged.estimate <= 1
    first, second = (
        (x @ x.T - 3 * np.eye(len(x))).argmax(axis=1) for x in (expected, found)
    )
    assert cost.unchanged.estimate == pytest.approx((first == second).mean())


def size(path: Path) -> int:
    weights = path.with_suffix(".bin")
    beside = weights.stat().st_size if path.suffix == ".xml" else 0
    return path.stat().st_size + beside


def test_what_features_are_not_computed_from() -> None:
    made = {
        "b": ("double", ["a"]),
        "c": ("add", ["b", "a"]),
        "d": ("head", ["c"]),
    }
    assert head_of(["c"], made) == ["head"]
    assert head_of(["a"], made) == ["add", "double", "head"]


def test_calibration_is_spread_over_what_is_given() -> None:
    pixels = np.zeros((601, 16, 16, 1), np.uint8)
    pixels += (np.arange(601) // 3).astype(np.uint8)[:, None, None, None]
    views = calibration_views(make(), pixels)
    assert views.shape == (300, 16, 16, 1)
    assert views[[0, 299], 0, 0, 0].tolist() == [0, 200]
    assert len(np.unique(views)) == 201


def test_embeddings_must_have_length_one() -> None:
    check_unit(np.array([[1.0, 0.0], [0.0, 0.0]]), "onnx")
    for row in ([0.6, 0.79], [1e-3, 0.0], [np.nan, 0.0]):
        with pytest.raises(RuntimeError, match="onnx model differ"):
            check_unit(np.array([row]), "onnx")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"quantize": "int4"}, "`quantize` of export must be one of"),
        ({"quantize": "int8"}, "`calibration` of export must be given"),
        ({"calibration": striped(4)}, "`calibration` of export must only"),
        (
            {"quantize": "int8", "format": "saved_model"},
            r"formats onnx, litert and openvino.*model.quantize\('int8'\)",
        ),
        (
            {"quantize": "int8", "calibration": striped(4).select([])},
            "`calibration` of export must not be empty",
        ),
    ],
)
def test_bad_arguments_are_named(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    given = {"format": "litert", **arguments}
    pytest.importorskip("ai_edge_litert.interpreter")
    with pytest.raises(ValueError, match=message):
        export_model(make(), tmp_path / "model.tflite", **given)
    assert contents(tmp_path) == {}


def test_a_head_must_be_known(tmp_path: Path) -> None:
    plain = keras.Sequential([keras.Input((16, 16, 1)), keras.layers.Flatten()])
    with pytest.raises(ValueError, match="`model` of export.*MetricModel"):
        export_model(
            plain, tmp_path / "model.onnx", format="onnx", quantize="int8",
            calibration=striped(4),
        )  # fmt: skip
