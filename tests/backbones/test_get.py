import importlib

import keras
import numpy as np
import pytest

from keras_dml import backbones, methods
from keras_dml.backbones.networks import known_branches
from keras_dml.data import byte_tokens
from keras_dml.layers import FrozenBatchNormalization


def test_small_convnet_has_its_number_of_weights() -> None:
    model = backbones.get("small_convnet")
    assert model.input_shape == (None, 48, 48, 1)
    trainable = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    assert 95_000 < trainable < 100_000


def test_small_convnet_takes_any_input_shape_and_width() -> None:
    whole = backbones.get("small_convnet", input_shape=(32, 40, 3))
    assert whole.input_shape == (None, 32, 40, 3)
    half = backbones.get("small_convnet", input_shape=(32, 40, 3), width=0.5)
    assert half.output_shape[-1] == whole.output_shape[-1] / 2
    assert 0.25 < half.count_params() / whole.count_params() < 0.26


def test_padding_of_texts_changes_nothing() -> None:
    short = backbones.get("small_text_encoder", input_shape=(8,))
    long = backbones.get("small_text_encoder", input_shape=(20,))
    long.set_weights(short.get_weights())
    texts = ["abc", "12345678"]
    features = short(byte_tokens(texts, 8))
    padded = long(byte_tokens(texts, 20))
    np.testing.assert_allclose(padded[:, :8], features, atol=1e-6)
    assert not np.any(padded[:, 8:])
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(padded._keras_mask).sum(axis=1), [3, 8]
    )


def test_order_of_letters_changes_the_features() -> None:
    encoder = backbones.get("small_text_encoder")
    one, two = encoder(byte_tokens(["abcd", "badc"], 48)).numpy().sum(axis=1)
    assert np.abs(one - two).max() > 0.01


def test_network_of_keras_applications_is_found_by_name() -> None:
    model = backbones.get("MobileNet", input_shape=(32, 32, 3))
    assert model.input_shape == (None, 32, 32, 3)
    assert len(model.output_shape) == 4
    first = model.layers[1]
    np.testing.assert_allclose(
        first(np.array([[[[0.0, 127.5, 255.0]]]])), [[[[-1, 0, 1]]]]
    )


@pytest.mark.parametrize(
    "error", [Exception("URL fetch failure on https://x"), TimeoutError("slow")]
)
def test_failed_download_of_weights_names_the_way_out(
    error, monkeypatch
) -> None:
    def failing(**_: object) -> None:
        raise error

    monkeypatch.setattr(keras.applications, "MobileNet", failing)
    with pytest.raises(ConnectionError) as raised:
        backbones.get("mobilenet", weights="imagenet")
    for part in (str(error), "~/.keras/models", "weights=None"):
        assert part in str(raised.value)

    def wrong(**_: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(keras.applications, "MobileNet", wrong)
    with pytest.raises(TypeError, match="a bug"):
        backbones.get("mobilenet")


def test_every_network_of_keras_applications_has_its_preprocessing() -> None:
    from keras_dml.backbones.networks import applications, family_of

    assert len(applications()) > 30
    for name in applications().values():
        module = importlib.import_module(
            f"keras.applications.{family_of(name)}"
        )
        assert callable(module.preprocess_input)
    assert family_of("ResNet50") == "resnet"
    assert family_of("ResNet50V2") == "resnet_v2"
    assert family_of("MobileNetV3Small") == "mobilenet_v3"


def test_caffe_preprocessing_is_part_of_resnet50() -> None:
    from keras_dml.backbones.networks import ApplicationsPreprocessing

    layer = ApplicationsPreprocessing("resnet")
    rgb = np.array([[[[10.0, 20.0, 30.0]]]], "f4")
    bgr_minus_mean = np.array([30 - 103.939, 20 - 116.779, 10 - 123.68])
    np.testing.assert_allclose(layer(rgb)[0, 0, 0], bgr_minus_mean, rtol=1e-5)
    again = ApplicationsPreprocessing.from_config(layer.get_config())
    assert again.family == "resnet"


def test_file_of_any_size_needs_an_input_shape(tmp_path) -> None:
    saved = backbones.small_convnet((None, None, 1), filters=(4, 8))
    path = tmp_path / "backbone.keras"
    saved.save(path)
    with pytest.raises(ValueError, match="`input_shape` must be given"):
        backbones.get(path)
    model = backbones.get(path, input_shape=(20, 24, 1))
    assert model.input_shape == (None, 20, 24, 1)
    x = np.random.default_rng(0).uniform(0, 255, (2, 20, 24, 1))
    np.testing.assert_array_equal(model(x), saved(x))


def test_frozen_batch_norm_trains_gamma_and_beta_only() -> None:
    plain = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    plain.get_layer("norm_0").moving_mean.assign([1.0, 2.0, 3.0, 4.0])
    model = backbones.get(plain, freeze_batch_norm=True)
    norm = model.get_layer("norm_0")
    assert isinstance(norm, FrozenBatchNormalization)
    assert [v.name for v in norm.trainable_variables] == ["gamma", "beta"]
    x = np.random.default_rng(0).uniform(0, 255, (4, 16, 16, 1))
    np.testing.assert_array_equal(model(x, training=True), plain(x))
    np.testing.assert_array_equal(norm.moving_mean, [1, 2, 3, 4])
    assert not isinstance(plain.get_layer("norm_0"), FrozenBatchNormalization)


def test_freeze_until_trains_only_the_layers_above() -> None:
    plain = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    model = backbones.get(plain, freeze_until="relu_0")
    trained = {v.path.split("/")[0] for v in model.trainable_variables}
    assert trained == {"conv_1", "norm_1"}
    assert plain.get_layer("conv_0").trainable
    x = np.random.default_rng(0).uniform(0, 255, (4, 16, 16, 1))
    np.testing.assert_array_equal(model(x), plain(x))
    # In training, too, statistics below the layer stay as they are.
    model(x, training=True)
    np.testing.assert_array_equal(model.get_layer("norm_0").moving_mean, 0)
    assert np.any(model.get_layer("norm_1").moving_mean)


def test_methods_keep_what_is_frozen() -> None:
    plain = backbones.small_convnet((16, 16, 1), filters=(4, 8, 8))
    frozen = backbones.get(plain, freeze_until="relu_0")
    for model in (
        methods.baseline(frozen, embedding_dim=4),
        methods.abe(
            frozen,
            embedding_dim=4,
            num_learners=2,
            branch="relu_0",
            attention_end="relu_1",
        ),
    ):
        trained = {v.path.split("/")[-2] for v in model.trainable_variables}
        assert {"conv_1", "norm_1"} < trained
        assert not {"conv_0", "norm_0"} & trained


def convnet() -> keras.Model:
    return backbones.get("small_convnet")


def volumes() -> keras.Model:
    return keras.Sequential([keras.Input((4, 4, 4, 7)), keras.layers.ReLU()])


@pytest.mark.parametrize(
    ("backbone", "arguments", "message"),
    [
        ("small_convent", {}, "Did you mean 'small_convnet'"),
        ("resnet500", {}, "Did you mean 'resnet50'"),
        ("no thing", {}, "must be .*Received: backbone='no thing'"),
        (volumes, {}, r"must return features.*\(None, 4, 4, 4, 7\)"),
        ("small_convnet", {"weights": "imagenet"}, "`weights` must only be"),
        ("mobilenet", {"width": 0.5}, "`width` of backbones.get must be 1"),
        ("hf://timm/resnet50.tv_in1k", {"width": 0.5}, "Omit it"),
        ("small_convnet", {"width": 0}, "greater than 0"),
        (
            "small_convnet",
            {"freeze_until": "relu0"},
            "`freeze_until` .* freeze_until='relu0'. .*Did you mean 'relu_0'",
        ),
        (
            convnet,
            {"output": "relu_0", "freeze_until": "relu_1"},
            "above its `output`. Received: freeze_until='relu_1', output='relu",
        ),
    ],
)
def test_unfit_arguments_raise(backbone, arguments, message) -> None:
    if callable(backbone):
        backbone = backbone()
    with pytest.raises(ValueError, match=message):
        backbones.get(backbone, **arguments)


def test_unfit_files_raise(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="missing.keras"):
        backbones.get("missing.keras")
    path = tmp_path / "text.keras"
    path.write_text("not a model")
    with pytest.raises(ValueError, match="text.keras.*cannot load"):
        backbones.get(path)
    volumes().save(path)
    with pytest.raises(ValueError, match="text.keras.*(None, 4, 4, 4, 7)"):
        backbones.get(path)


def test_declared_network_is_found_by_its_name(monkeypatch) -> None:
    monkeypatch.setattr(
        backbones.BACKBONES, "_entries", dict(backbones.BACKBONES)
    )

    @backbones.network("flat", "nothing but pixels", branches=("a", "b"))
    def flat(input_shape: tuple[int, int, int] = (8, 8, 1)) -> keras.Model:
        inputs = keras.Input(input_shape)
        return keras.Model(inputs, keras.layers.Flatten()(inputs), name="flat")

    assert backbones.flat is flat
    assert backbones.get("flat").output_shape == (None, 64)
    assert backbones.get("flat", input_shape=(4, 4, 1)).output_shape[1] == 16
    assert known_branches()["flat"] == ("a", "b")
    with pytest.raises(ValueError, match="`weights` must only be given for"):
        backbones.get("flat", weights="flat.h5")
    with pytest.raises(ValueError, match="Did you mean 'flat'"):
        backbones.get("flatt")
    with pytest.raises(AttributeError, match="has no attribute 'flatt'"):
        _ = backbones.flatt
