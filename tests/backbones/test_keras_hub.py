"""Presets loaded by KerasHub itself, from folders: no network is needed."""

import json
import sys

import keras
import numpy as np
import pytest

from keras_dml import backbones

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


@pytest.mark.slow
def test_preset_takes_raw_pixels(folder, network) -> None:
    model = backbones.get(f"keras_hub:{folder}", input_shape=SHAPE)
    assert model.name == "tiny_resnet"
    assert model.input_shape == (None, *SHAPE)
    expected = network((pixels() / 255 - np.array(MEAN)) / np.array(STD))
    np.testing.assert_allclose(model(pixels()), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_saved_preset_loads_without_keras_hub(
    folder, tmp_path, monkeypatch
) -> None:
    model = backbones.get(f"keras_hub:{folder}", input_shape=SHAPE)
    model.save(tmp_path / "model.keras")
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    again = backbones.get(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(pixels()), model(pixels()))


def torchvision_resnet26():
    """ResNet V1 with strides on the 3×3, random, its parts named as there."""
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(2)

    def conv(inputs, outputs, size, stride=1):
        return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)

    class Block(nn.Module):
        def __init__(self, inputs, width, stride) -> None:
            super().__init__()
            outputs = 4 * width
            self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
            self.conv2 = conv(width, width, 3, stride)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3 = conv(width, outputs, 1)
            self.bn3 = nn.BatchNorm2d(outputs)
            self.downsample = nn.Sequential()
            if inputs != outputs:
                self.downsample.append(conv(inputs, outputs, 1, stride))
                self.downsample.append(nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = self.bn1(self.conv1(x)).relu()
            y = self.bn2(self.conv2(y)).relu()
            return (self.bn3(self.conv3(y)) + self.downsample(x)).relu()

    parts = {
        "conv1": conv(3, 64, 7, 2),
        "bn1": nn.BatchNorm2d(64),
        "relu": nn.ReLU(),
        "maxpool": nn.MaxPool2d(3, 2, 1),
    }
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512), start=1):
        parts[f"layer{stage}"] = nn.Sequential(
            Block(inputs, width, 1 if stage == 1 else 2),
            Block(4 * width, width, 1),
        )
        inputs = 4 * width
    network = nn.Sequential()
    for name, part in parts.items():
        network.add_module(name, part)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.0)
            nn.init.normal_(part.bias, 0, 0.2)
            part.running_mean.normal_(0, 0.2)
            # Small, so that an epsilon of another size shows.
            part.running_var.uniform_(1e-3, 1.0)
    return network.eval().requires_grad_(False)


@pytest.mark.slow
@pytest.mark.peers
def test_timm_weights_match_torchvision(tmp_path) -> None:
    """The format of "hf://timm/resnet50.tv_in1k", with fewer blocks."""
    numpy_files = pytest.importorskip("safetensors.numpy")
    network = torchvision_resnet26()
    state = {name: x.numpy() for name, x in network.state_dict().items()}
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
    x = (pixels() / 255 - np.array(MEAN)) / np.array(STD)
    seen = network[0].weight.new_tensor(x.transpose(0, 3, 1, 2))
    expected = network(seen).numpy().transpose(0, 2, 3, 1)
    assert expected.max() > 0.1
    np.testing.assert_allclose(
        model(pixels()), expected, rtol=1e-3, atol=1e-4 * expected.max()
    )
