"""Exports whose networks compute in 8-bit integers."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_dml import backbones, methods
from keras_dml.data import ImageSet
from keras_dml.evaluation import embed
from keras_dml.export import export_model
from keras_dml.export.int8 import calibration_of, check_embeddings, head_nodes
from tests.export.serving import contents
from tests.export.test_portable import FILES, FORMATS, PACKAGES

QUANTIZERS = {"openvino": ("nncf",)}

# In the converters and of the interpreter's own parts; nothing of ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


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


@pytest.mark.slow
@pytest.mark.parametrize("file_format", FORMATS)
def test_network_is_quantized_but_not_the_head(
    file_format: str, tmp_path: Path, capfd: Any
) -> None:
    for package in (*PACKAGES[file_format], *QUANTIZERS.get(file_format, ())):
        pytest.importorskip(package)
    model, images = make("gem"), striped()
    path = export_model(
        model, tmp_path / FILES[file_format], format=file_format,
        quantize="int8", calibration=images,
    )  # fmt: skip
    assert capfd.readouterr().out == ""
    expected, actual = embed(model, images), embed(model, images, engine=path)
    # Eight bits cannot be equal, or nothing was quantized.
    assert np.abs(actual - expected).max() > 1e-4
    norms = np.linalg.norm(actual.astype(float), axis=1)
    np.testing.assert_allclose(norms, 1, rtol=0, atol=1e-6)
    assert (actual * expected).sum(axis=1).min() > 0.99
    size = sum(len(x) for x in contents(tmp_path).values())
    assert size < 0.5 * 4 * model.count_params()
    # A head in integers has at most 256 values for all of its outputs.
    assert len(np.unique(actual)) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("method", ["abe", "baseline"])
@pytest.mark.parametrize("file_format", FORMATS)
def test_bright_images_among_dark_ones_keep_their_embeddings(
    file_format: str, method: str, tmp_path: Path
) -> None:
    for package in (*PACKAGES[file_format], *QUANTIZERS.get(file_format, ())):
        pytest.importorskip(package)
    keras.utils.set_random_seed(0)
    model = getattr(methods, method)(
        backbones.small_convnet((16, 16, 1)), embedding_dim=16
    )
    even = striped()
    pixels = np.stack([even.read(i) for i in range(len(even))])
    shares = np.random.default_rng(1).uniform(0.05, 1, (len(even), 1, 1, 1))
    images = ImageSet((pixels * shares).astype(np.uint8), even.labels)
    path = export_model(
        model, tmp_path / FILES[file_format], format=file_format,
        quantize="int8", calibration=images,
    )  # fmt: skip
    expected, actual = embed(model, images), embed(model, images, engine=path)
    spread = np.linalg.norm(expected - expected.mean(0), axis=1).mean()
    # 1.8 and 6 with ranges that cut off what the brighter half reaches.
    assert np.linalg.norm(actual - expected, axis=1).max() < 0.5 * spread


def test_head_nodes_are_those_after_the_features() -> None:
    sources = {
        "b": ("double", ["a"]),
        "c": ("add", ["b", "a"]),
        "d": ("head", ["c"]),
    }
    assert head_nodes(["c"], sources) == ["head"]
    assert head_nodes(["a"], sources) == ["add", "double", "head"]


def test_calibration_is_spread_over_all_examples() -> None:
    pixels = np.zeros((601, 16, 16, 1), np.uint8)
    pixels += (np.arange(601) // 3).astype(np.uint8)[:, None, None, None]
    images = calibration_of(pixels)
    values = [images.read(i)[0, 0, 0] for i in range(300)]
    assert len(images) == 300
    assert (values[0], values[-1], len({*values})) == (0, 200, 201)


def test_embeddings_must_have_length_one() -> None:
    x = np.array([[1.0, 0.0], [0.0, 0.0]])
    check_embeddings(x, x, "onnx")
    for row in ([0.6, 0.79], [1e-3, 0.0], [np.nan, 0.0]):
        y = np.array([row])
        with pytest.raises(RuntimeError, match="onnx model differ"):
            check_embeddings(y, y, "onnx")


@pytest.mark.parametrize(
    ("degrees", "is_near"), [((0, 0), True), ((0, 28), True), ((15, 16), False)]
)
def test_embeddings_must_be_near_the_model(degrees, is_near) -> None:
    """Two embeddings off by angles; their chords are 2 sin(angle / 2)."""
    angles = np.radians(degrees)
    turned = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    expected = np.tile([1.0, 0.0], (2, 1))
    if is_near:
        check_embeddings(turned, expected, "openvino")
        return
    with pytest.raises(RuntimeError, match="openvino model are 0.27 apart"):
        check_embeddings(turned, expected, "openvino")


PLAIN = keras.Sequential([keras.Input((16, 16, 1)), keras.layers.Flatten()])


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
        (
            {"quantize": "int8", "calibration": striped(4), "model": PLAIN},
            "`model` of export.*MetricModel",
        ),
    ],
)
def test_unfit_arguments_raise(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    arguments = {"model": make(), "format": "litert", **arguments}
    with pytest.raises(ValueError, match=message):
        export_model(path=tmp_path / "model.tflite", **arguments)
    assert contents(tmp_path) == {}
