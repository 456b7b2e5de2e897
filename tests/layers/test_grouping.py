import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.layers import (
    AttentiveGrouping,
    ChannelGrouping,
    GateGrouping,
    LinearGrouping,
)
from tests.layers.test_attentive_grouping import feature_map

EVERY = [AttentiveGrouping, LinearGrouping, GateGrouping, ChannelGrouping]
PEERS = EVERY[1:]
POOL = {"avg": np.mean, "max": np.max}


def with_biases(layer):
    """Builds the layer with nonzero biases."""
    if not layer.built:
        layer.build((None, 3, 4, 10))
    for weight in layer.weights:
        if weight.name == "bias":
            weight.assign(feature_map(weight.shape, seed=7))
    return layer


def linear(layer, maps: np.ndarray) -> np.ndarray:
    pooled = POOL[layer.pooling](maps, axis=(1, 2))
    kernel, d = layer.embed.kernel.numpy(), layer.group_dim
    return np.stack(
        [
            pooled @ kernel[:, p * d : (p + 1) * d]
            for p in range(layer.num_groups)
        ],
        axis=1,
    )


def gate(layer, maps: np.ndarray) -> np.ndarray:
    """With `Conv2D` in place of dense layers."""
    groups = []
    for p in range(layer.num_groups):
        mask = convolve(layer.gates[p], convolve(layer.reduce, maps))
        pooled = POOL[layer.pooling](mask * maps, axis=(1, 2))
        groups.append(pooled @ layer.embed.kernel.numpy())
    return np.stack(groups, axis=1)


def convolve(dense, maps: np.ndarray) -> np.ndarray:
    kernel = dense.kernel.numpy()[None, None]
    return tf.nn.conv2d(maps, kernel, 1, "SAME").numpy() + dense.bias.numpy()


def channel(layer, maps: np.ndarray) -> np.ndarray:
    """Weighs the map itself, and then pools it."""
    groups = []
    for p in range(layer.num_groups):
        squeezed = maps.mean((1, 2)) @ layer.squeezes[p].kernel.numpy()
        excited = squeezed.clip(0) @ layer.excitations[p].kernel.numpy()
        weights = 1 / (1 + np.exp(-excited))
        weighted = maps * weights[:, None, None]
        pooled = POOL[layer.pooling](weighted, axis=(1, 2))
        groups.append(
            pooled @ layer.embed.kernel.numpy() + layer.embed.bias.numpy()
        )
    return np.stack(groups, axis=1)


BY_HAND = {LinearGrouping: linear, GateGrouping: gate, ChannelGrouping: channel}


@pytest.mark.parametrize("module", PEERS)
@pytest.mark.parametrize("pooling", ["avg", "max"])
@pytest.mark.parametrize(("dim", "groups"), [(8, 2), (12, 3), (4, 1)])
def test_grouping_matches_its_definition(module, pooling, dim, groups) -> None:
    layer = with_biases(module(dim, groups, pooling=pooling))
    maps = feature_map()
    actual = layer(maps).numpy()
    assert actual.shape == (2, groups, dim // groups)
    np.testing.assert_allclose(actual, BY_HAND[module](layer, maps), atol=1e-5)


@pytest.mark.parametrize("module", PEERS)
def test_gradient_matches_finite_differences(module) -> None:
    """In float64, along a random direction of all weights at once."""
    layer = with_biases(module(8, 2, dtype="float64"))
    maps = feature_map().astype("float64")
    weights = layer.trainable_variables
    steps = [feature_map(w.shape, seed=k) for k, w in enumerate(weights)]
    towards = feature_map((2, 2, 4), seed=9)

    def loss(step: float = 0.0) -> tf.Tensor:
        for weight, change in zip(weights, steps, strict=True):
            weight.assign_add(step * change)
        return tf.reduce_sum(layer(maps) * towards)

    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, weights)
    slope = sum(np.sum(g * s) for g, s in zip(gradients, steps, strict=True))
    after, before = loss(1e-5), loss(-2e-5)
    assert slope == pytest.approx(float(after - before) / 2e-5, rel=1e-5)


def test_weights_have_the_shapes_of_the_released_code() -> None:
    def shapes(layer):
        layer.build((None, None, None, 40))
        return sorted(tuple(w.shape) for w in layer.weights)

    assert shapes(LinearGrouping(6, 1)) == [(40, 6)]
    assert shapes(LinearGrouping(6, 2)) == [(40, 6)]
    assert shapes(GateGrouping(6, 2)) == [
        (5,), (5, 40), (5, 40), (40,), (40,), (40, 3), (40, 5),
    ]  # fmt: skip
    assert shapes(ChannelGrouping(6, 2)) == [
        (3,), (8, 40), (8, 40), (40, 3), (40, 8), (40, 8),
    ]  # fmt: skip


def test_groups_start_different() -> None:
    """Groups that start equal would stay equal."""
    for module in EVERY:
        groups = module(12, 3)(feature_map()).numpy()
        for p, q in ((0, 1), (0, 2), (1, 2)):
            assert np.abs(groups[:, p] - groups[:, q]).max() > 1e-3


def test_attention_of_gates_averages_their_masks() -> None:
    layer = with_biases(GateGrouping(8, 2))
    maps = feature_map()
    groups, attention = layer(maps, return_attention_scores=True)
    expected = [
        convolve(layer.gates[p], convolve(layer.reduce, maps)).mean(-1)
        for p in range(2)
    ]
    np.testing.assert_allclose(attention, np.stack(expected, -1), atol=1e-5)
    np.testing.assert_array_equal(groups, layer(maps))


@pytest.mark.parametrize("module", [LinearGrouping, ChannelGrouping])
def test_groupings_without_attention_raise(module) -> None:
    for inputs in (feature_map(), keras.Input((3, 4, 10))):
        with pytest.raises(ValueError, match="does not weight positions"):
            module(8, 2)(inputs, return_attention_scores=True)
