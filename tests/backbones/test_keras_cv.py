"""Presets loaded by KerasCV itself, from folders: no network is needed."""

import json

import keras
import numpy as np
import pytest

from keras_dml import backbones
from keras_dml.layers import FrozenBatchNormalization

keras_cv = pytest.importorskip("keras_cv")
pytestmark = pytest.mark.peers


def network(rescaling: bool = True) -> keras.Model:
    return keras_cv.models.ResNetBackbone(
        stackwise_filters=[8, 16],
        stackwise_blocks=[1, 1],
        stackwise_strides=[1, 2],
        include_rescaling=rescaling,
    )


def saved(model, folder) -> str:
    """A preset as `from_preset` of KerasCV reads it."""
    folder.mkdir()
    model.save_weights(folder / "model.weights.h5")
    config = keras.saving.serialize_keras_object(model)
    config["weights"] = "model.weights.h5"
    config.pop("build_config", None)
    (folder / "config.json").write_text(json.dumps(config))
    return f"keras_cv:{folder}"


def test_a_preset_takes_raw_pixels_and_can_be_frozen(tmp_path) -> None:
    original = network()
    name = saved(original, tmp_path / "tiny")
    shape = (32, 32, 3)
    model = backbones.get(name, input_shape=shape, freeze_batch_norm=True)
    assert model.name == "tiny"
    assert isinstance(model.get_layer("conv1_bn"), FrozenBatchNormalization)
    x = np.random.default_rng(0).uniform(0, 255, (2, *shape))
    np.testing.assert_allclose(model(x, training=True), original(x), atol=1e-5)


def test_a_preset_must_rescale(tmp_path) -> None:
    name = saved(network(rescaling=False), tmp_path / "tiny")
    with pytest.raises(ValueError, match="include_rescaling=True"):
        backbones.get(name, input_shape=(32, 32, 3))


def test_presets_have_the_names_that_the_library_gives_them() -> None:
    assert "resnet50_imagenet" in keras_cv.models.ResNetBackbone.presets
