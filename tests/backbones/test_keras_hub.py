"""Presets loaded by KerasHub itself, from folders: no network is needed."""

import json
import sys

import keras
import numpy as np
import pytest

from keras_dml import backbones, methods
from keras_dml.backbones import splitting
from keras_dml.layers import FrozenBatchNormalization

keras_hub = pytest.importorskip("keras_hub")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SHAPE = (64, 64, 3)


def pixels() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(0, 255, (2, *SHAPE)).astype("float32")


def converter_kind():
    """KerasHub's image converter of ResNets."""
    kinds = keras_hub.layers.ImageConverter.__subclasses__()
    resnet = keras_hub.models.ResNetBackbone
    return next(kind for kind in kinds if kind.backbone_cls is resnet)


@pytest.fixture(scope="module")
def network() -> keras.Model:
    model = keras_hub.models.ResNetBackbone(
        [64], [7], [64, 64, 64], [1, 2, 1], [1, 2, 2], "basic_block"
    )
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            draw = np.random.default_rng(1).uniform(0.5, 1.5, layer.gamma.shape)
            layer.moving_mean.assign(draw - 1)
            layer.moving_variance.assign(draw)
    return model


@pytest.fixture(scope="module")
def folder(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("presets") / "tiny_resnet"
    network.save_to_preset(str(path))
    converter = converter_kind()(
        image_size=SHAPE[:2],
        scale=[1 / 255 / s for s in STD],
        offset=[-m / s for m, s in zip(MEAN, STD, strict=True)],
    )
    converter.save_to_preset(str(path))
    return path


def test_a_preset_takes_raw_pixels(folder, network) -> None:
    model = backbones.get(f"keras_hub:{folder}", input_shape=SHAPE)
    assert model.name == "tiny_resnet"
    assert model.input_shape == (None, *SHAPE)
    expected = network((pixels() / 255 - np.array(MEAN)) / np.array(STD))
    np.testing.assert_allclose(model(pixels()), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_frozen_it_can_be_cut_for_abe(folder) -> None:
    backbone = backbones.get(
        f"keras_hub:{folder}", input_shape=SHAPE, freeze_batch_norm=True
    )
    norms = [
        layer
        for layer in backbone.layers
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
    assert len(norms) > 8
    assert all(isinstance(x, FrozenBatchNormalization) for x in norms)
    x = pixels()
    np.testing.assert_array_equal(backbone(x, training=True), backbone(x))
    cut = "stack1_block0_out"
    upper = splitting.copy_between(backbone, cut)
    lower = splitting.lower_part(backbone, cut)
    np.testing.assert_allclose(upper(lower(x)), backbone(x), atol=1e-5)
    model = methods.abe(
        backbone,
        branch=cut,
        attention_end="stack2_block0_out",
        embedding_dim=8,
        num_learners=2,
    )
    assert model.outputs_of(x)["attention"].shape == (2, 2, 8, 8, 64)


@pytest.mark.slow
def test_saved_it_is_loaded_without_keras_hub(
    folder, tmp_path, monkeypatch
) -> None:
    model = backbones.get(f"keras_hub:{folder}", input_shape=SHAPE)
    model.save(tmp_path / "model.keras")
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    again = backbones.get(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(pixels()), model(pixels()))


def test_a_model_of_keras_hub_can_be_frozen(network) -> None:
    model = backbones.get(network, input_shape=SHAPE, freeze_batch_norm=True)
    np.testing.assert_array_equal(
        model(pixels(), training=True), network(pixels())
    )


def test_a_folder_without_preprocessing(network, tmp_path) -> None:
    network.save_to_preset(str(tmp_path / "bare"))
    with pytest.raises(ValueError, match="not contain an image conv"):
        backbones.get(f"keras_hub:{tmp_path / 'bare'}", input_shape=SHAPE)


# torchvision's ResNet, as timm publishes it.


def state_dict() -> dict[str, np.ndarray]:
    """Random weights of ResNet-26 by the names of torchvision."""
    rng = np.random.default_rng(2)
    state: dict[str, np.ndarray] = {}

    def conv(name, inputs, outputs, size):
        scale = np.sqrt(2 / (inputs * size * size))
        shape = (outputs, inputs, size, size)
        state[f"{name}.weight"] = rng.normal(0, scale, shape)

    def norm(name, channels):
        state[f"{name}.weight"] = rng.uniform(0.5, 1.0, channels)
        state[f"{name}.bias"] = rng.normal(0, 0.2, channels)
        state[f"{name}.running_mean"] = rng.normal(0, 0.2, channels)
        # Small, so that an epsilon of another size shows.
        state[f"{name}.running_var"] = rng.uniform(1e-3, 1.0, channels)

    conv("conv1", 3, 64, 7)
    norm("bn1", 64)
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            name = f"layer{stage}.{block}"
            sizes = [
                (inputs, width, 1),
                (width, width, 3),
                (width, 4 * width, 1),
            ]
            for i, (a, b, size) in enumerate(sizes, start=1):
                conv(f"{name}.conv{i}", a, b, size)
                norm(f"{name}.bn{i}", b)
            if block == 0:
                conv(f"{name}.downsample.0", inputs, 4 * width, 1)
                norm(f"{name}.downsample.1", 4 * width)
            inputs = 4 * width
    return {k: v.astype("float32") for k, v in state.items()}


def torchvision(state, x):
    """ResNet V1: strides on the 3×3, symmetric padding, ε 1e-5."""
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    state = {k: torch.tensor(v) for k, v in state.items()}

    def layer(x, conv, norm, stride=1):
        weight = state[f"{conv}.weight"]
        y = f.conv2d(x, weight, None, stride, weight.shape[-1] // 2)
        names = ("running_mean", "running_var", "weight", "bias")
        return f.batch_norm(y, *(state[f"{norm}.{n}"] for n in names), eps=1e-5)

    y = torch.tensor(x.transpose(0, 3, 1, 2).copy(), dtype=torch.float32)
    y = f.max_pool2d(f.relu(layer(y, "conv1", "bn1", 2)), 3, 2, 1)
    for stage in range(1, 5):
        for block in range(2):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            z = f.relu(layer(y, f"{name}.conv1", f"{name}.bn1"))
            z = f.relu(layer(z, f"{name}.conv2", f"{name}.bn2", stride))
            z = layer(z, f"{name}.conv3", f"{name}.bn3")
            if block == 0:
                down = f"{name}.downsample"
                y = layer(y, f"{down}.0", f"{down}.1", stride)
            y = f.relu(y + z)
    return y.numpy().transpose(0, 2, 3, 1)


@pytest.mark.slow
@pytest.mark.peers
def test_timm_weights_compute_what_torchvision_does(tmp_path) -> None:
    """The format of "hf://timm/resnet50.tv_in1k", with fewer blocks."""
    numpy_files = pytest.importorskip("safetensors.numpy")
    state = state_dict()
    numpy_files.save_file(state, tmp_path / "model.safetensors")
    config = {
        "architecture": "resnet26",
        "num_classes": 1000,
        "pretrained_cfg": {
            "input_size": [3, 224, 224],
            "mean": MEAN,
            "std": STD,
            "interpolation": "bilinear",
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = backbones.get(f"keras_hub:{tmp_path}", input_shape=SHAPE)
    expected = torchvision(
        state, (pixels() / 255 - np.array(MEAN)) / np.array(STD)
    )
    assert model.output_shape == (None, 2, 2, 2048)
    assert expected.max() > 0.1
    np.testing.assert_allclose(
        model(pixels()), expected, rtol=1e-3, atol=1e-4 * expected.max()
    )
