"""FeaturePooling and TokenMask, against loops in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.layers import FeaturePooling, TokenMask
from tests.conftest import graph_and_xla

MASK = np.array([[1, 1, 0, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]], bool)


def tokens(seed: int = 0) -> np.ndarray:
    """Of either sign, (3, 5, 4)."""
    return np.random.default_rng(seed).normal(size=(3, 5, 4)).astype("float32")


def by_loop(kind: str, features: np.ndarray, mask: np.ndarray, p: float = 3):
    """Each example and channel by itself; 0 where no position counts."""
    pooled = np.zeros((len(features), features.shape[-1]))
    for b, example in enumerate(features):
        for c in range(features.shape[-1]):
            values = example[mask[b]][:, c].astype("float64")
            if kind == "cls":
                pooled[b, c] = example[0, c]
            elif len(values) and kind == "avg":
                pooled[b, c] = sum(values) / len(values)
            elif len(values) and kind == "max":
                pooled[b, c] = max(values)
            elif len(values) and kind == "avg_max":
                pooled[b, c] = sum(values) / len(values) + max(values)
            elif len(values):
                powers = [max(x, 1e-6) ** p for x in values]
                pooled[b, c] = (sum(powers) / len(powers)) ** (1 / p)
    return pooled


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("kind", ["avg", "max", "avg_max", "gem", "cls"])
def test_pooling_of_tokens_matches_a_loop(kind, masked) -> None:
    mask = MASK if masked else np.ones_like(MASK)
    pool = FeaturePooling(kind)
    pooled_tokens = pool(tokens(), mask=MASK if masked else None)
    expected = by_loop(kind, tokens(), mask)
    np.testing.assert_allclose(pooled_tokens, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["avg", "max", "avg_max", "gem"])
def test_pooling_of_a_map_equals_that_of_its_positions(kind) -> None:
    features = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("f4")
    mask = np.random.default_rng(1).random((2, 3, 4)) < 0.5
    pool = FeaturePooling(kind)
    pooled_map = pool(features, mask=mask)
    expected = by_loop(kind, features.reshape(2, 12, 5), mask.reshape(2, 12))
    np.testing.assert_allclose(pooled_map, expected, rtol=1e-5, atol=1e-6)
    pool(features)


@pytest.mark.parametrize("p", [1.0, 3.0, 12.5])
def test_gem_and_its_gradients_match_a_loop(p) -> None:
    """By central differences of the loop, also where powers underflow."""
    features = np.abs(tokens()[:2]) + 0.1
    pool = FeaturePooling("gem")
    pool.build(features.shape)
    pool.p.assign(p)
    x = tf.constant(features)
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(pool(x, mask=MASK[:2]))
    by_x, by_p = tape.gradient(total, [x, pool.p.value])

    def loss(features, p):
        return by_loop("gem", features, MASK[:2], p).sum()

    step = 1e-4
    slope = (loss(features, p + step) - loss(features, p - step)) / (2 * step)
    np.testing.assert_allclose(by_p, slope, rtol=1e-3, atol=1e-5)
    moved = features.astype("float64")
    for at in [(0, 0, 0), (0, 2, 1), (1, 2, 3)]:
        up, down = moved.copy(), moved.copy()
        up[at] += step
        down[at] -= step
        slope = (loss(up, p) - loss(down, p)) / (2 * step)
        np.testing.assert_allclose(by_x[at], slope, rtol=1e-3, atol=1e-5)


@graph_and_xla
@pytest.mark.parametrize("kind", ["avg", "max", "avg_max", "gem"])
def test_fully_masked_example_has_no_gradient(kind, jit) -> None:
    pool = FeaturePooling(kind)
    pool.build((None, 5, 4))

    @tf.function(jit_compile=jit, autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(pool(x, mask=tf.constant(MASK)))
        return tape.gradient(total, x)

    gradients = gradient(tf.constant(tokens())).numpy()
    assert np.isfinite(gradients).all()
    assert not gradients[~MASK].any()
    assert gradients[0, 0].any()


def test_masks_of_embedding_layers_are_used() -> None:
    embedding = keras.layers.Embedding(9, 4, mask_zero=True)
    ids = np.array([[3, 0, 5], [1, 2, 0]])
    table = embedding(ids).numpy()
    expected = [table[0, [0, 2]].mean(0), table[1, :2].mean(0)]
    inputs = keras.Input((None,))
    outputs = FeaturePooling("avg")(embedding(inputs))
    model = keras.Model(inputs, outputs)
    np.testing.assert_allclose(model(ids), expected, rtol=1e-6)
    np.testing.assert_allclose(model.predict(ids, verbose=0), expected, 1e-6)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("none", (2, 3, 4)), ("cls", (2, 3, 3, 4)),
     ("gem", (2, 4)), ("avg_max", (2, 4)), ("avg", (2, 3, 3, 3, 4))],
)  # fmt: skip
def test_unfit_features_and_poolings_raise(kind, shape) -> None:
    with pytest.raises(ValueError, match="`pooling=.*takes.*Received: .*Use"):
        FeaturePooling(kind)(np.zeros(shape))
    with pytest.raises(ValueError, match="`pooling` of FeaturePooling must"):
        FeaturePooling("average")


@pytest.mark.parametrize("kind", ["avg", "max", "cls", "none"])
def test_pooled_features_pass_unchanged(kind) -> None:
    features = tokens()[:, 0]
    np.testing.assert_array_equal(FeaturePooling(kind)(features), features)


# TokenMask.


def test_prefix_and_padding_are_masked() -> None:
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(9, 4, mask_zero=True)(ids)
    padding = keras.Input((None,), dtype="int32", name="padding_mask")
    layer = TokenMask(num_prefix_tokens=1)
    outputs = layer([x, padding])
    model = keras.Model([ids, padding], outputs)
    arrays = [np.array([[1, 2, 3, 0, 5]]), np.array([[1, 1, 1, 1, 0]])]
    output = model(arrays)
    np.testing.assert_array_equal(
        output._keras_mask, [[False, True, True, False, False]]
    )
    pooled = FeaturePooling("avg")(output)
    np.testing.assert_allclose(pooled, output[:, 1:3].numpy().mean(1), 1e-6)
    again = TokenMask.from_config(layer.get_config())
    assert again.num_prefix_tokens == 1 and again.grid is None


def test_tokens_must_fill_the_grid() -> None:
    layer = TokenMask(1, (2, 3))
    assert TokenMask.from_config(layer.get_config()).grid == (2, 3)
    assert layer(np.zeros((1, 7, 4))).shape == (1, 7, 4)
    with pytest.raises(ValueError, match="require 7 tokens, and 8 tokens"):
        TokenMask(1, (2, 3))(np.zeros((1, 8, 4)))
