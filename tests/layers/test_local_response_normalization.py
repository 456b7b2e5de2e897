import numpy as np
import pytest

from keras_dml.layers import LocalResponseNormalization


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
def test_matches_a_loop_over_channels(arguments, channels) -> None:
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
    import tensorflow as tf

    x = tf.zeros((1, 1, 1, 4))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = LocalResponseNormalization()(x)
    np.testing.assert_array_equal(tape.gradient(y, x), np.ones((1, 1, 1, 4)))


def test_even_neighborhoods_are_refused() -> None:
    with pytest.raises(ValueError, match="`size` .* odd.*size=4"):
        LocalResponseNormalization(4)
