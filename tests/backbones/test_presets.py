"""Presets: what is asked of KerasHub and KerasCV, by stand-ins for them.

`test_keras_hub.py` loads presets with KerasHub; here KerasCV loads one.
"""

import json
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_dml import backbones
from keras_dml.backbones import splitting
from keras_dml.layers import FrozenBatchNormalization

SCALE, OFFSET = [0.1, 0.2, 0.3], [-1.0, 2.0, 3.0]


def network(**attributes) -> keras.Model:
    """A network for any image size, with statistics other than 0 and 1."""
    inputs = keras.Input((None, None, 3))
    x = keras.layers.Conv2D(4, 3, strides=2, name="stem")(inputs)
    x = keras.layers.BatchNormalization(name="norm")(x)
    x = keras.layers.Conv2D(5, 3, name="top")(x)
    model = keras.Model(inputs, x, name="some_backbone_7")
    model.get_layer("norm").moving_mean.assign([1.0, 2.0, 3.0, 4.0])
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def pixels() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(0, 255, (2, 16, 12, 3)).astype("float32")


@pytest.fixture
def hub(monkeypatch) -> SimpleNamespace:
    """Stands in for KerasHub; records the requested preset."""
    asked: list[str] = []

    def from_preset(result):
        def load(preset):
            asked.append(preset)
            return result

        return SimpleNamespace(from_preset=load)

    model = network()
    converter = SimpleNamespace(scale=SCALE, offset=OFFSET)
    module = SimpleNamespace(
        models=SimpleNamespace(Backbone=from_preset(model)),
        layers=SimpleNamespace(ImageConverter=from_preset(converter)),
    )
    monkeypatch.setitem(sys.modules, "keras_hub", module)
    return SimpleNamespace(asked=asked, model=model, converter=converter)


@pytest.mark.parametrize(
    ("name", "preset", "called"),
    [
        ("hf://timm/resnet50.tv_in1k", None, "resnet50_tv_in1k"),
        ("kaggle://keras/r/keras/tiny/2", None, "2"),
        ("keras_hub:resnet_50_imagenet", "resnet_50_imagenet",
         "resnet_50_imagenet"),
        ("keras_hub:hf://a/b-c", "hf://a/b-c", "b_c"),
        ("keras_hub:some/Folder/", "some/Folder/", "Folder"),
    ],
)  # fmt: skip
def test_preset_names_the_model(name, preset, called, hub) -> None:
    model = backbones.get(name, input_shape=(16, 12, 3))
    assert hub.asked == [preset or name] * 2
    assert model.name == called


def test_preprocessing_is_part_of_the_backbone(hub) -> None:
    model = backbones.get("hf://timm/x", input_shape=(16, 12, 3))
    assert model.input_shape == (None, 16, 12, 3)
    expected = hub.model(pixels() * np.array(SCALE) + np.array(OFFSET))
    np.testing.assert_allclose(model(pixels()), expected, atol=1e-4)


def test_preprocessing_is_exact_in_half_precision(hub) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    model = backbones.get("hf://timm/x", input_shape=(16, 12, 3))
    exact = pixels() * np.array(SCALE) + np.array(OFFSET)
    layer = model.get_layer("preprocessing")
    np.testing.assert_allclose(layer(pixels()), exact, atol=1e-5)
    # A preset may leave pixels alone.
    hub.converter.scale = hub.converter.offset = None
    model = backbones.get("hf://timm/x", input_shape=(16, 12, 3))
    np.testing.assert_array_equal(
        model.get_layer("preprocessing")(pixels()), pixels()
    )


def test_preset_can_be_frozen_cut_and_saved(hub, tmp_path) -> None:
    model = backbones.get(
        "hf://timm/x", input_shape=(16, 12, 3), freeze_batch_norm=True
    )
    norm = model.get_layer("norm")
    assert isinstance(norm, FrozenBatchNormalization)
    assert [v.name for v in norm.trainable_variables] == ["gamma", "beta"]
    x = pixels()
    np.testing.assert_array_equal(model(x, training=True), model(x))
    upper = splitting.copy_between(model, "norm")
    lower = splitting.lower_part(model, "norm")
    np.testing.assert_allclose(upper(lower(x)), model(x), rtol=1e-6)
    model.save(tmp_path / "model.keras")
    again = backbones.get(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(x), model(x))


def test_preset_needs_a_size_and_no_weights(hub) -> None:
    with pytest.raises(ValueError, match="`input_shape` must be given"):
        backbones.get("hf://timm/x")
    with pytest.raises(ValueError, match="`weights` must only be given for"):
        backbones.get("hf://timm/x", weights="imagenet")


def test_preset_without_preprocessing_raises(hub, monkeypatch) -> None:
    module = sys.modules["keras_hub"]
    monkeypatch.setattr(
        module.layers.ImageConverter, "from_preset", lambda _: None
    )
    match = "not contain an image converter.*with_preprocessing"
    with pytest.raises(ValueError, match=match):
        backbones.get("keras_hub:x", input_shape=(16, 12, 3))
    monkeypatch.delattr(module.layers.ImageConverter, "from_preset")
    with pytest.raises(ValueError, match=match):
        backbones.get("keras_hub:x", input_shape=(16, 12, 3))


def test_preset_that_fails_to_load_raises(hub, monkeypatch) -> None:
    def fail(preset):
        raise OSError("no network")

    module = sys.modules["keras_hub"]
    monkeypatch.setattr(module.models.Backbone, "from_preset", fail)
    with pytest.raises(ValueError, match="'hf://timm/x', which fails: no net"):
        backbones.get("hf://timm/x")


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("hf://timm/x", "keras_hub", "keras-hub"),
        ("keras_hub:x", "keras_hub", "keras-hub"),
        ("keras_cv:x", "keras_cv", "keras-cv"),
    ],
)
def test_missing_library_names_its_extra(
    name, module, extra, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    command = rf'pip install "keras-dml\[{extra}\]"'
    with pytest.raises(ImportError, match=command):
        backbones.get(name)


# KerasCV.


def stand_in_for_keras_cv(monkeypatch, model) -> list[str]:
    """Stands in for two backbone classes; one has the preset "known"."""
    asked = []

    class Backbone:
        presets: dict[str, str] = {}

        @classmethod
        def from_preset(cls, preset):
            asked.append(f"{cls.__name__} {preset}")
            return model

    class Other(Backbone):
        presets = {"unknown": ""}

    class ResNetBackbone(Backbone):
        presets = {"known": ""}

    models = SimpleNamespace(
        Backbone=Backbone, Other=Other, ResNetBackbone=ResNetBackbone, task=1
    )
    module = SimpleNamespace(models=models)
    monkeypatch.setitem(sys.modules, "keras_cv", module)
    return asked


def test_keras_cv_presets_load_from_their_class(monkeypatch) -> None:
    model = network(include_rescaling=True)
    asked = stand_in_for_keras_cv(monkeypatch, model)
    backbone = backbones.get("keras_cv:known", input_shape=(16, 12, 3))
    assert backbone.name == "known"
    np.testing.assert_array_equal(backbone(pixels()), model(pixels()))
    backbones.get("keras_cv:some/folder", input_shape=(16, 12, 3))
    assert asked == ["ResNetBackbone known", "Backbone some/folder"]


def test_keras_cv_presets_must_rescale(monkeypatch) -> None:
    stand_in_for_keras_cv(monkeypatch, network(include_rescaling=False))
    with pytest.raises(ValueError, match="include_rescaling=True.*'keras_cv:k"):
        backbones.get("keras_cv:known", input_shape=(16, 12, 3))


@pytest.mark.slow
@pytest.mark.peers
def test_keras_cv_loads_a_preset_from_a_folder(tmp_path) -> None:
    """It takes raw pixels and can be frozen."""
    keras_cv = pytest.importorskip("keras_cv")
    original = keras_cv.models.ResNetBackbone(
        stackwise_filters=[8, 16],
        stackwise_blocks=[1, 1],
        stackwise_strides=[1, 2],
        include_rescaling=True,
    )
    original.save_weights(tmp_path / "model.weights.h5")
    config = keras.saving.serialize_keras_object(original)
    config["weights"] = "model.weights.h5"
    config.pop("build_config", None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = backbones.get(
        f"keras_cv:{tmp_path}", input_shape=(16, 12, 3), freeze_batch_norm=True
    )
    assert isinstance(model.get_layer("conv1_bn"), FrozenBatchNormalization)
    np.testing.assert_allclose(
        model(pixels(), training=True), original(pixels()), atol=1e-5
    )
    assert "resnet50_imagenet" in keras_cv.models.ResNetBackbone.presets


# Any model.


def test_with_preprocessing_copies_the_backbone() -> None:
    model = network()
    layer = keras.layers.Rescaling(SCALE, OFFSET)
    copy = backbones.with_preprocessing(model, layer)
    assert copy.input_shape == model.input_shape
    assert copy.name == model.name
    assert [x.name for x in copy.layers[2:]] == ["stem", "norm", "top"]
    before = model(pixels()).numpy()
    copy.get_layer("stem").kernel.assign(copy.get_layer("stem").kernel * 0)
    np.testing.assert_array_equal(model(pixels()), before)


def test_with_preprocessing_applies_to_every_use_of_the_input() -> None:
    inputs = keras.Input((4, 4, 1))
    twice = keras.layers.Add()([inputs, keras.layers.ReLU()(inputs)])
    model = keras.Model([inputs], [twice])
    copy = backbones.with_preprocessing(model, keras.layers.Rescaling(-2.0))
    x = np.array([1.0, -3.0] * 8, "float32").reshape(1, 4, 4, 1)
    expected = -2 * x + np.maximum(-2 * x, 0)
    np.testing.assert_allclose(copy(x), expected)
