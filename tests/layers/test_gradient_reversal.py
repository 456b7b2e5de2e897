"""GradientReversal: to the last bit, in every precision and wrapping."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.layers import GradientReversal
from tests.conftest import graph_and_xla

DTYPES = ("float16", "bfloat16", "float32", "float64")
INPUTS = [1.0009765625, -65504.0, 3e-8, 0.0]
UPSTREAM = [1.0, 2.5, -3.0, 0.1]


def both_ways(layer, x, upstream):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    return y, tape.gradient(y, x, output_gradients=upstream)


@pytest.mark.parametrize("dtype", DTYPES)
@graph_and_xla
def test_forward_is_the_identity_and_backward_rounds_once(dtype, jit) -> None:
    layer = GradientReversal(scale=0.3)
    x, upstream = tf.cast(INPUTS, dtype), tf.cast(UPSTREAM, dtype)
    run = tf.function(both_ways, jit_compile=jit, autograph=False)
    y, gradient = run(layer, x, upstream)
    assert y.dtype == gradient.dtype == dtype
    np.testing.assert_array_equal(y, x)
    wide = np.float64 if dtype == "float64" else np.float32
    exact = -(upstream.numpy().astype(wide) * wide(np.float32(0.3)))
    np.testing.assert_array_equal(gradient, tf.cast(exact, dtype))


def test_mixed_precision_leaves_the_dtype_alone() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    layer = GradientReversal()
    assert layer(tf.constant([65536.0])).numpy() == [65536.0]
    assert layer(keras.Input((3,), dtype="bfloat16")).dtype == "bfloat16"


@graph_and_xla
def test_scale_may_change_without_a_new_trace(jit) -> None:
    layer = GradientReversal(scale=2.0)
    x = tf.constant([1.0])
    traces = []

    @tf.function(jit_compile=jit, autograph=False)
    def gradient() -> tf.Tensor:
        traces.append(1)
        return both_ways(layer, x, x)[1]

    assert gradient() == [-2.0]
    layer.scale_weight.assign(0.25)
    assert gradient() == [-0.25]
    assert len(traces) == 1


def adversary(reversed_by: float | None) -> keras.Model:
    """Features → (reversal) → nested classifier; same weights each time."""
    keras.utils.set_random_seed(3)
    inner = keras.Sequential(
        [
            keras.Input((4,)),
            *([GradientReversal(reversed_by)] if reversed_by else []),
            keras.layers.Dense(2),
        ]
    )
    return keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(4), inner],
    )


def test_gradient_is_reversed_before_the_layer_in_a_nested_model() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    gradients = []
    for scale in (None, 0.5):
        model = adversary(scale)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x)))
        gradients.append(tape.gradient(loss, model.trainable_variables))
    plain, turned = gradients
    for a, b, factor in zip(plain, turned, (-0.5, -0.5, 1, 1), strict=True):
        np.testing.assert_allclose(b, factor * a, rtol=1e-6)


def test_exported_model_reverses_the_gradient(tmp_path) -> None:
    model = adversary(0.5)
    x = tf.constant([[1.0, -1.0, 2.0, 0.0, 0.5]])
    model.export(tmp_path / "exported", verbose=False)
    again = tf.saved_model.load(str(tmp_path / "exported"))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        before, after = model(x), again.serve(x)
    np.testing.assert_allclose(after, before, atol=1e-6)
    expected = tape.gradient(before, x)
    assert np.any(expected)
    np.testing.assert_allclose(tape.gradient(after, x), expected, rtol=1e-5)


def test_layer_round_trips_through_file_and_config(tmp_path) -> None:
    model = adversary(0.5)
    layer = model.layers[1].layers[0]
    layer.scale_weight.assign(0.75)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    restored = again.layers[1].layers[0]
    assert restored.get_config() == layer.get_config()
    assert restored.scale == 0.5
    assert float(restored.scale_weight) == 0.75
