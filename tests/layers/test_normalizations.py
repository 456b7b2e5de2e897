"""FrozenBatchNormalization and LocalResponseNormalization."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.layers import (
    FrozenBatchNormalization,
    LocalResponseNormalization,
)


def test_statistics_stay_and_scale_trains() -> None:
    layer = FrozenBatchNormalization()
    x = np.random.default_rng(0).normal(5, 3, (64, 4)).astype("f4")
    model = keras.Sequential([keras.Input((4,)), layer])
    model.compile("sgd", "mse")
    gamma = layer.gamma.numpy()
    model.fit(x, np.zeros_like(x), epochs=1, verbose=0)
    np.testing.assert_array_equal(layer.moving_mean, np.zeros(4))
    np.testing.assert_array_equal(layer.moving_variance, np.ones(4))
    assert np.all(layer.gamma.numpy() != gamma)


def test_training_and_inference_agree() -> None:
    layer = FrozenBatchNormalization(momentum=0.5)
    x = np.random.default_rng(0).normal(5, 3, (8, 4)).astype("f4")
    trained = layer(x, training=True)
    np.testing.assert_array_equal(trained, layer(x, training=False))


def by_hand(x, size, alpha, beta, bias) -> np.ndarray:
    """A loop over channels and their neighbors, in float64."""
    x = x.astype("float64")
    y = np.empty_like(x)
    for c in range(x.shape[-1]):
        low, high = max(c - size // 2, 0), c + size // 2 + 1
        energy = np.square(x[..., low:high]).sum(-1)
        y[..., c] = x[..., c] / (bias + alpha / size * energy) ** beta
    return y


@pytest.mark.parametrize(
    "arguments",
    [(5, 1e-4, 0.75, 1.0), (3, 0.5, 0.6, 2.0), (1, 0.1, 1.0, 1.0)],
)
@pytest.mark.parametrize("channels", [2, 9])
def test_local_response_normalization_matches_a_loop(
    arguments, channels
) -> None:
    x = np.random.default_rng(0).normal(0, 30, (2, 3, 4, channels))
    x = x.astype("float32")
    layer = LocalResponseNormalization(*arguments)
    np.testing.assert_allclose(layer(x), by_hand(x, *arguments), rtol=1e-5)


def test_large_half_precision_activations_do_not_overflow() -> None:
    layer = LocalResponseNormalization(dtype="mixed_float16")
    x = np.full((1, 1, 1, 5), 1000.0, "float16")
    y = layer(x)
    assert y.dtype == "float16"
    expected = by_hand(x, 5, 1e-4, 0.75, 1.0)
    np.testing.assert_allclose(y, expected, rtol=1e-3)


def test_gradient_at_zero_is_the_identity() -> None:
    x = tf.zeros((1, 1, 1, 4))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = LocalResponseNormalization()(x)
    np.testing.assert_array_equal(tape.gradient(y, x), np.ones((1, 1, 1, 4)))
