import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_dml.layers import AttentiveGrouping


def feature_map(shape=(2, 3, 4, 10), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def by_hand(layer: AttentiveGrouping, maps: np.ndarray):
    """Eq. 5 to 9, position by position: keys, values, softmax, sum."""
    queries = layer.queries.numpy().astype("float64")
    key_kernel = layer.key_kernel.numpy().astype("float64")
    value_kernel = layer.value_kernel.numpy().astype("float64")
    batch, height, width, _ = maps.shape
    count = queries.shape[1]
    groups = np.zeros((batch, count, value_kernel.shape[1]))
    attention = np.zeros((batch, height, width, count))
    for b in range(batch):
        for p in range(count):
            for i in range(height):
                for j in range(width):
                    key = maps[b, i, j] @ key_kernel
                    attention[b, i, j, p] = np.exp(queries[:, p] @ key)
            attention[b, :, :, p] /= attention[b, :, :, p].sum()
            for i in range(height):
                for j in range(width):
                    value = maps[b, i, j] @ value_kernel
                    groups[b, p] += attention[b, i, j, p] * value
    return groups, attention


@pytest.mark.parametrize(
    ("dim", "groups", "key_dim"), [(8, 4, None), (12, 3, 5), (4, 1, 1)]
)
def test_layer_matches_its_equations(dim, groups, key_dim) -> None:
    layer = AttentiveGrouping(dim, groups, key_dim)
    maps = feature_map()
    actual, attention = layer(maps, return_attention_scores=True)
    expected, expected_attention = by_hand(layer, maps)
    assert actual.shape == (2, groups, dim // groups)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    np.testing.assert_allclose(attention, expected_attention, atol=1e-6)
    np.testing.assert_allclose(layer(maps), actual, rtol=1e-6)


def test_gradients_match_two_convolutions() -> None:
    """The reference computes in the paper's order, with `Conv2D`."""
    layer = AttentiveGrouping(9, 3, key_dim=4)
    maps = tf.constant(feature_map())
    layer(maps)
    key = keras.layers.Conv2D(4, 1, use_bias=False)
    value = keras.layers.Conv2D(3, 1, use_bias=False)
    for convolution, kernel in (
        (key, layer.key_kernel),
        (value, layer.value_kernel),
    ):
        convolution.build(maps.shape)
        convolution.kernel.assign(kernel.numpy()[None, None])
    direction = feature_map((2, 3, 3), seed=1)

    with tf.GradientTape() as tape:
        tape.watch(maps)
        loss = tf.reduce_sum(direction * layer(maps))
    weights = [layer.queries, layer.key_kernel, layer.value_kernel, maps]
    actual = tape.gradient(loss, weights)

    with tf.GradientTape() as tape:
        tape.watch(maps)
        keys = tf.reshape(key(maps), (2, 12, 4))
        values = tf.reshape(value(maps), (2, 12, 3))
        scores = tf.einsum("kp,bnk->bpn", layer.queries, keys)
        groups = tf.nn.softmax(scores, axis=-1) @ values
        loss = tf.reduce_sum(direction * groups)
    weights = [layer.queries, key.kernel, value.kernel, maps]
    for a, b in zip(actual, tape.gradient(loss, weights), strict=True):
        np.testing.assert_allclose(a, np.reshape(b, a.shape), atol=1e-5)


@settings(max_examples=10)
@given(data=st.data())
def test_permuting_positions_changes_nothing(data) -> None:
    """Theorem 1; the attention moves along with the positions."""
    height = data.draw(st.integers(1, 4))
    width = data.draw(st.integers(1, 4))
    seed = data.draw(st.integers(0, 2**16))
    order = np.array(data.draw(st.permutations(range(height * width))))
    maps = feature_map((2, height, width, 6), seed)
    permuted = maps.reshape(2, -1, 6)[:, order].reshape(maps.shape)
    layer = AttentiveGrouping(6, 3, query_initializer="normal")
    groups, attention = layer(maps, return_attention_scores=True)
    again, moved = layer(permuted, return_attention_scores=True)
    np.testing.assert_allclose(again, groups, atol=1e-5)
    expected = attention.numpy().reshape(2, -1, 3)[:, order]
    np.testing.assert_allclose(
        moved.numpy().reshape(2, -1, 3), expected, atol=1e-6
    )


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_attention_sums_to_one_over_positions(scale: float) -> None:
    """Includes scores far beyond the range of `exp`."""
    layer = AttentiveGrouping(8, 2)
    groups, attention = layer(
        scale * feature_map(), return_attention_scores=True
    )
    np.testing.assert_allclose(np.sum(attention, axis=(1, 2)), 1, atol=1e-5)
    assert np.all(np.isfinite(groups))


def test_queries_start_uniform_within_the_bound() -> None:
    layer = AttentiveGrouping(256, 256, key_dim=16)
    layer.build((None, 7, 7, 32))
    queries = layer.queries.numpy()
    assert queries.shape == (16, 256)
    assert np.abs(queries).max() <= 1 / 4
    assert queries.std() == pytest.approx(1 / 4 / np.sqrt(3), rel=0.05)
    assert np.ptp(queries, axis=1).min() > 0.4


def test_keys_have_an_eighth_of_the_channels() -> None:
    layer = AttentiveGrouping(6, 3)
    layer.build((None, None, None, 40))
    shapes = {w.name: tuple(w.shape) for w in layer.weights}
    assert shapes == {
        "queries": (5, 3),
        "key_kernel": (40, 5),
        "value_kernel": (40, 2),
    }
