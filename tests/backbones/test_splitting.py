import keras
import numpy as np
import pytest
from keras import layers

from keras_dml import backbones
from keras_dml.backbones import splitting
from keras_dml.utils.models import copy_model
from tests.backbones.test_any_model import IDS, words


def pixels(shape, batch: int = 2) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(0, 255, (batch, *shape)).astype("float32")


def with_noise(model: keras.Model) -> keras.Model:
    """Sets statistics and biases other than 0 and 1, so that mix-ups show."""
    rng = np.random.default_rng(1)
    model.set_weights(
        [w + rng.uniform(0, 0.1, w.shape) for w in model.get_weights()]
    )
    return model


@pytest.fixture
def backbone() -> keras.Model:
    return with_noise(backbones.small_convnet((16, 12, 1), (4, 6, 8)))


@pytest.mark.parametrize("layer", ["relu_0", "pool_1"])
def test_lower_and_upper_part_compute_the_whole(backbone, layer) -> None:
    x = pixels((16, 12, 1))
    lower = splitting.lower_part(backbone, layer)
    upper = splitting.copy_between(backbone, layer)
    np.testing.assert_array_equal(upper(lower(x)), backbone(x))
    assert lower.name == upper.name == backbone.name


def test_three_pieces_compute_the_whole(backbone) -> None:
    x = pixels((16, 12, 1))
    lower = splitting.lower_part(backbone, "relu_0")
    middle = splitting.copy_between(backbone, "relu_0", "relu_1")
    upper = splitting.copy_between(backbone, "relu_1")
    assert [layer.name for layer in middle.layers[1:]] == [
        "conv_1", "pool_1", "norm_1", "relu_1",
    ]  # fmt: skip
    np.testing.assert_array_equal(upper(middle(lower(x))), backbone(x))


def test_copies_are_independent_of_the_backbone(backbone) -> None:
    x = pixels((16, 12, 1))
    before = backbone(x).numpy()
    piece = splitting.copy_between(backbone, "relu_0")
    piece.set_weights([w * 0 for w in piece.get_weights()])
    np.testing.assert_array_equal(backbone(x), before)
    # The lower part shares the backbone's layers.
    lower = splitting.lower_part(backbone, "relu_0")
    assert lower.get_layer("conv_0") is backbone.get_layer("conv_0")


def test_backbone_can_be_cut_repeatedly(backbone) -> None:
    """Keras' own cut leaves nodes behind, after which `.output` fails."""
    for _ in range(2):
        for layer in ("relu_0", "relu_1"):
            splitting.copy_between(backbone, layer)
            assert backbone.get_layer("relu_2").output is not None


def test_frozen_batch_norm_stays_frozen(backbone) -> None:
    frozen = backbones.get(backbone, freeze_batch_norm=True)
    piece = splitting.copy_between(frozen, "relu_0")
    x = np.random.default_rng(0).normal(size=(2, 8, 6, 4))
    np.testing.assert_array_equal(piece(x, training=True), piece(x))


@pytest.mark.parametrize("kind", ["sequential", "list of one input"])
def test_any_model_with_one_input_can_be_split(kind) -> None:
    model = keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            layers.Conv2D(3, 3, activation="relu", name="first"),
            layers.Conv2D(4, 3, name="second"),
        ]
    )
    if kind != "sequential":
        model = keras.Model([model.inputs[0]], model.outputs[0])
    x = pixels((6, 6, 2))
    lower = splitting.lower_part(model, "first")
    upper = splitting.copy_between(model, "first")
    np.testing.assert_array_equal(upper(lower(x)), model.layers[-1](lower(x)))
    assert upper.get_layer("second").kernel is not model.layers[-1].kernel


def residual() -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, padding="same", name="stem")(inputs)
    y = layers.Conv2D(4, 3, padding="same", name="inside")(x)
    x = layers.Add(name="sum")([x, y])
    return keras.Model(inputs, layers.ReLU(name="end")(x), name="residual")


def test_connection_past_the_cut_raises() -> None:
    model = residual()
    with pytest.raises(ValueError, match="'inside' of 'residual'.*between two"):
        splitting.copy_between(model, "inside")
    x = pixels((8, 8, 3))
    cut = splitting.copy_between(model, "sum")(
        splitting.lower_part(model, "sum")(x)
    )
    np.testing.assert_array_equal(cut, model(x))


def test_end_below_the_start_raises(backbone) -> None:
    with pytest.raises(ValueError, match="Received: layer 'relu_1'"):
        splitting.copy_between(backbone, "relu_1", "relu_0")


def test_unknown_layers_are_named(backbone) -> None:
    with pytest.raises(ValueError, match="no layer 'relu1'.*mean 'relu_1'"):
        splitting.copy_between(backbone, "relu1")
    with pytest.raises(ValueError, match="Its layers: .*conv_0, pool_0"):
        splitting.lower_part(backbone, "stage4")


def test_without_downsampling_drops_pooling_alone(backbone) -> None:
    piece = splitting.copy_between(backbone, "relu_0")
    even = splitting.without_downsampling(piece)
    assert piece.output_shape == (None, 4, 3, 8)
    assert even.output_shape == (None, 8, 6, 8)
    x = np.random.default_rng(0).normal(size=(2, 8, 6, 4)).astype("f4")
    y = x
    for layer in piece.layers[1:]:
        if not isinstance(layer, layers.MaxPooling2D):
            y = layer(y)
    np.testing.assert_array_equal(even(x), y)


@pytest.mark.parametrize("size", [8, 7])
def test_without_downsampling_drops_strides_and_their_padding(size) -> None:
    """As in MobileNet: uneven padding, then a strided convolution."""
    inputs = keras.Input((size, size, 3))
    x = layers.ZeroPadding2D(((0, 1), (0, 1)))(inputs)
    y = layers.DepthwiseConv2D(3, strides=2, name="depthwise")(x)
    z = layers.MaxPooling2D(3, strides=2)(x)
    x = layers.Concatenate()([y, z])
    # Padding before a convolution without strides has to stay.
    x = layers.ZeroPadding2D(1, name="stays")(x)
    x = layers.Conv2D(5, 3, name="conv")(x)
    inner = keras.Sequential(
        [layers.Conv2D(5, 1, strides=2), layers.MaxPooling2D(2)], name="inner"
    )
    model = keras.Model(inputs, inner(x))
    even = splitting.without_downsampling(model)
    assert even.output_shape == (None, size, size, 5)
    assert even.get_layer("depthwise").padding == "same"
    assert "stays" in [layer.name for layer in even.layers]
    assert len([x for x in even.layers if "padding" in x.name]) == 0
    for a, b in zip(even.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_without_downsampling_keeps_pooling_of_stride_one() -> None:
    inputs = keras.Input((6, 6, 2))
    pooled = layers.MaxPooling2D(3, strides=1, padding="same")(inputs)
    model = keras.Model(inputs, pooled)
    even = splitting.without_downsampling(model)
    x = np.random.default_rng(0).normal(size=(1, 6, 6, 2))
    np.testing.assert_array_equal(even(x), model(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "after", "last"),
    [
        ("MobileNetV2", "block_5_add", "block_12_add"),
        ("EfficientNetB0", "block3b_add", "block5c_add"),
    ],
)
def test_networks_of_keras_applications_can_be_split(name, after, last) -> None:
    backbone = backbones.get(name, input_shape=(96, 96, 3))
    lower = splitting.lower_part(backbone, after)
    upper = splitting.copy_between(backbone, after)
    x = pixels((96, 96, 3), batch=1)
    np.testing.assert_allclose(upper(lower(x)), backbone(x), atol=1e-5)
    middle = splitting.copy_between(backbone, after, last)
    even = splitting.without_downsampling(middle)
    assert even.output_shape[1:3] == lower.output_shape[1:3]
    assert even.count_params() == middle.count_params()


def test_copy_computes_the_same_and_shares_no_weights(backbone) -> None:
    copy = copy_model(backbone, name="copy")
    x = pixels((16, 12, 1))
    np.testing.assert_array_equal(copy(x), backbone(x))
    assert copy.name == "copy"
    assert not {id(v) for v in copy.variables} & {
        id(v) for v in backbone.variables
    }


# Several backbones as one.


def networks() -> list[keras.Model]:
    whole = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    return [
        copy_model(whole, name=f"network_{k}", same_weights=False)
        for k in range(2)
    ]


@pytest.mark.parametrize("pooling", [None, "avg", "max"])
def test_side_by_side_concatenates_the_features(pooling) -> None:
    models, x = networks(), pixels((16, 16, 1), batch=3)
    joined = splitting.side_by_side(models, "both", pooling)
    assert joined.name == "both"
    maps = [model(x).numpy() for model in models]
    if pooling is not None:
        pool = getattr(np, {"avg": "mean", "max": "max"}[pooling])
        maps = [pool(y, axis=(1, 2)) for y in maps]
    np.testing.assert_allclose(
        joined(x), np.concatenate(maps, axis=-1), rtol=1e-5
    )


def test_side_by_side_shares_weights_and_adds_poolings() -> None:
    first, second = networks()
    joined = splitting.side_by_side([first, second], "both", "gem")
    assert {id(v) for v in first.weights} <= {id(v) for v in joined.weights}
    names = [v.path for v in joined.weights if v.name == "p"]
    assert len(names) == 2 and names[0] != names[1]
    kernels = [x.get_layer("conv_0").get_weights()[0] for x in (first, second)]
    assert not np.allclose(*kernels)


def test_side_by_side_keeps_the_masks_of_tokens() -> None:
    """Sequential models, whose padding no pooling sees."""
    whole = words()
    models = [copy_model(whole, name=f"words_{k}") for k in range(2)]
    joined = splitting.side_by_side(models, "both", "avg")
    longer = np.concatenate([IDS, np.zeros_like(IDS)], axis=1)
    np.testing.assert_allclose(joined(longer), joined(IDS), atol=1e-6)
