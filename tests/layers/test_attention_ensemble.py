import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from keras_dml.layers import AttentionEnsemble
from keras_dml.utils.models import ModelTemplate

SIZE, CHANNELS, CONTEXT, FEATURES = (3, 2), 3, 4, 5


def trunk(**kwargs) -> keras.Model:
    """1×1 convolution, tanh, and max pooling that halves the width."""
    inputs = keras.Input((*SIZE, CHANNELS))
    conv = layers.Conv2D(
        FEATURES, 1, activation="tanh", bias_initializer="normal", **kwargs
    )
    x = layers.AveragePooling2D((1, 2))(conv(inputs))
    return keras.Model(inputs, x, name="trunk")


def attention() -> keras.Model:
    inputs = keras.Input((*SIZE, CHANNELS))
    conv = layers.Conv2D(
        CONTEXT, 1, activation="tanh", bias_initializer="normal"
    )
    return keras.Model(inputs, conv(inputs), name="attention")


def ensemble(**kwargs) -> AttentionEnsemble:
    arguments = {
        "trunk": trunk(), "attention": attention(),
        "embedding_dim": 12, "num_learners": 3, **kwargs,
    }  # fmt: skip
    layer = AttentionEnsemble(**arguments)
    maps = layer.num_learners if layer.stacked else 1
    layer.build((None, *SIZE, maps * CHANNELS))
    rng = np.random.default_rng(2)
    for variable in layer.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    return layer


def features(maps: int = 1, batch: int = 4) -> np.ndarray:
    shape = (batch, *SIZE, maps * CHANNELS)
    return np.random.default_rng(1).normal(size=shape).astype("float32")


def weights(layer) -> list[np.ndarray]:
    return [np.asarray(w, "float64") for w in layer.get_weights()]


def masks_by_hand(layer, x) -> list[np.ndarray]:
    kernel, bias = weights(layer.attention)
    context = np.tanh(x @ kernel[0, 0] + bias)
    masks = []
    for mask in layer.masks:
        kernel, bias = weights(mask)
        masks.append(1 / (1 + np.exp(-(context @ kernel + bias))))
    return masks


def embed_by_hand(layer, k, x, pooling=np.mean) -> np.ndarray:
    """G of one map: 1×1 convolution, pooling, dense layer, unit length."""
    kernel, bias = weights(layer.trunks[k])
    y = np.tanh(x @ kernel[0, 0] + bias)
    y = (y[:, :, 0::2] + y[:, :, 1::2]) / 2
    kernel, bias = weights(layer.projections[k])
    y = pooling(y, axis=(1, 2)) @ kernel + bias
    return y / np.linalg.norm(y, axis=1, keepdims=True)


def by_hand(layer, x, pooling=np.mean) -> np.ndarray:
    """Eq. 7, one learner after the other, in float64."""
    x = x.astype("float64")
    maps = [x] * layer.num_learners
    if layer.has_attention:
        maps = [x * mask for mask in masks_by_hand(layer, x)]
    if layer.stacked:
        maps = [x[..., CHANNELS * m :][..., :CHANNELS] for m in range(3)]
    parts = [
        embed_by_hand(layer, 0 if layer.shared else m, y, pooling)
        for m, y in enumerate(maps)
    ]
    return np.stack(parts, axis=1)


VARIANTS = {
    "abe": {},
    "heads": {"attention": None, "shared": False},
    "heads_attention": {"shared": False},
    "tails": {"attention": None, "stacked": True},
    "independent": {"attention": None, "stacked": True, "shared": False},
}
# Together they have all that the others have.
two_variants = pytest.mark.parametrize("variant", ["heads_attention", "tails"])


def make(variant: str, **kwargs) -> tuple[AttentionEnsemble, np.ndarray]:
    layer = ensemble(**VARIANTS[variant], **kwargs)
    return layer, features(3 if layer.stacked else 1)


@pytest.mark.parametrize(
    ("variant", "pooling"), [*((x, "avg") for x in VARIANTS), ("tails", "max")]
)
def test_layer_matches_learners_computed_one_by_one(variant, pooling) -> None:
    layer, x = make(variant, pooling=pooling)
    pool = {"avg": np.mean, "max": np.max}[pooling]
    expected = by_hand(layer, x, pool)
    assert layer(x).shape == expected.shape == (4, 3, 4)
    np.testing.assert_allclose(layer(x), expected, atol=2e-6)


def test_masks_match_those_of_each_learner() -> None:
    layer, x = make("abe")
    parts, masks = layer(x, return_attention_scores=True)
    assert masks.shape == (4, 3, *SIZE, CHANNELS)
    expected = np.stack(masks_by_hand(layer, x), axis=1)
    np.testing.assert_allclose(masks, expected, atol=1e-6)
    np.testing.assert_array_equal(parts, layer(x))
    assert np.min(masks) > 0 and np.max(masks) < 1
    assert np.abs(masks[:, 0] - masks[:, 1]).max() > 0.1


@two_variants
def test_gradient_matches_finite_differences(variant) -> None:
    """Checks the gradients of the map and of every weight."""
    layer, x = make(variant)
    target = np.random.default_rng(5).normal(size=(4, 3, 4))
    with tf.GradientTape() as tape:
        inputs = tf.constant(x)
        tape.watch(inputs)
        loss = tf.reduce_sum(layer(inputs) * target)
    gradients = tape.gradient(loss, [inputs, *layer.trainable_variables])
    rng = np.random.default_rng(6)
    tensors = [None, *layer.trainable_variables]
    for variable, gradient in zip(tensors, gradients, strict=True):
        direction = rng.normal(size=gradient.shape)
        slope = slope_by_hand(layer, x, target, variable, direction)
        assert slope == pytest.approx(
            float(np.sum(gradient * direction)), rel=2e-2, abs=2e-3
        )


def slope_by_hand(layer, x, target, variable, direction) -> float:
    values = []
    start = None if variable is None else variable.numpy()
    for step in (-1e-3, 1e-3):
        moved = x
        if variable is None:
            moved = x + step * direction
        else:
            variable.assign(start + step * direction)
        values.append(np.sum(by_hand(layer, moved) * target))
    if variable is not None:
        variable.assign(start)
    return (values[1] - values[0]) / 2e-3


@two_variants
def test_shared_trunk_runs_once(variant) -> None:
    layer, x = make(variant)
    batches = []
    for model in layer.trunks:
        call = model.call

        def counted(inputs, *args, call=call, **kwargs):
            batches.append(inputs.shape[0])
            return call(inputs, *args, **kwargs)

        model.call = counted
    layer(x)
    assert batches == ([12] if layer.shared else [4, 4, 4])


@two_variants
def test_merged_distance_is_the_mean_of_the_learners(variant) -> None:
    layer, x = make(variant)
    parts = layer(x).numpy()
    merged = layer.merge(parts).numpy()
    assert merged.shape == (4, 12)
    np.testing.assert_allclose(np.linalg.norm(merged, axis=1), 1, atol=1e-6)
    # Eq. 3, with squared distances.
    apart = np.square(merged[0] - merged[1]).sum()
    each = np.square(parts[0] - parts[1]).sum(axis=1)
    assert apart == pytest.approx(each.mean(), rel=1e-5)


def test_copies_start_from_the_given_weights() -> None:
    g, c = trunk(), attention()
    layer = AttentionEnsemble(g, c, 12, 3, shared=False)
    layer.build((None, *SIZE, CHANNELS))
    for copy in layer.trunks:
        for a, b in zip(copy.get_weights(), g.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
        assert copy.layers[1].kernel is not g.layers[1].kernel
    for a, b in zip(
        layer.attention.get_weights(), c.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    # What starts from scratch starts differently for every learner.
    for group in (layer.masks, layer.projections):
        kernels = [x.kernel.numpy() for x in group]
        assert np.abs(kernels[0] - kernels[1]).min() > 0
        limit = np.sqrt(6 / sum(kernels[0].shape))
        assert np.abs(kernels).max() <= limit


def test_paths_tell_the_copies_apart() -> None:
    layer, _ = make("heads_attention")
    paths = [v.path for v in layer.variables]
    assert len(paths) == len(set(paths))
    assert all(p.startswith("attention_ensemble") for p in paths)
    assert sum("/trunk_2/" in p for p in paths) == 2
    assert sum("/attention/" in p for p in paths) == 2
    assert sum("/mask_1/" in p for p in paths) == 2


def test_maps_may_be_tokens() -> None:
    inputs = keras.Input((7, 3))
    tokens = keras.Model(inputs, layers.Dense(5)(inputs))
    layer = AttentionEnsemble(tokens, tokens, 4, 2)
    x = np.random.default_rng(0).normal(size=(2, 7, 3))
    parts, masks = layer(x, return_attention_scores=True)
    assert masks.shape == (2, 2, 7, 3)
    kernel, bias = weights(layer.trunks[0])
    y = (x * masks.numpy()[:, 1]) @ kernel + bias
    kernel, bias = weights(layer.projections[0])
    y = y.mean(axis=1) @ kernel + bias
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    np.testing.assert_allclose(parts[:, 1], y, atol=1e-5)


def test_embeddings_are_float32_over_a_half_precision_trunk() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    half = trunk()
    keras.config.set_dtype_policy("float32")
    layer = ensemble(trunk=half)
    parts = layer(tf.cast(features(), "float16"))
    assert layer.trunks[0].layers[1].compute_dtype == "float16"
    assert parts.dtype == "float32"
    np.testing.assert_allclose(np.linalg.norm(parts, axis=2), 1, atol=1e-6)
    np.testing.assert_allclose(parts, by_hand(layer, features()), atol=0.02)


def test_attention_that_halves_the_map_raises() -> None:
    inputs = keras.Input((*SIZE, CHANNELS))
    halving = keras.Model(inputs, layers.MaxPooling2D((1, 2))(inputs))
    with pytest.raises(ValueError, match="keep the height.*without_downsamp"):
        ensemble(attention=halving)


def test_masks_without_attention_raise() -> None:
    layer, x = make("heads")
    with pytest.raises(ValueError, match="has no masks"):
        layer(x, return_attention_scores=True)


def test_template_without_its_model_raises() -> None:
    template = ModelTemplate(trunk())
    template.forget()
    with pytest.raises(ValueError, match=r"Received: copy\('trunk_0'\)"):
        template.copy("trunk_0")
    again = keras.saving.deserialize_keras_object(template.config)
    assert again.output_shape == trunk().output_shape
