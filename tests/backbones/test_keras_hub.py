"""Presets loaded by KerasHub itself, from folders: no network is needed."""

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


def test_a_preset_takes_raw_pixels(folder, network) -> None:
    model = backbones.get(f"keras_hub:{folder}", input_shape=SHAPE)
    assert model.name == "tiny_resnet"
    assert model.input_shape == (None, *SHAPE)
    expected = network((pixels() / 255 - np.array(MEAN)) / np.array(STD))
    np.testing.assert_allclose(model(pixels()), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_saved_it_is_loaded_without_keras_hub(
    folder, tmp_path, monkeypatch
) -> None:
    model = backbones.get(f"keras_hub:{folder}", input_shape=SHAPE)
    model.save(tmp_path / "model.keras")
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    again = backbones.get(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(pixels()), model(pixels()))
