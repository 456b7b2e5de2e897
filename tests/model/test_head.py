"""Pooling of feature maps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.methods import EmbeddingHead


def features(batch: int = 3) -> tf.Tensor:
    rng = np.random.default_rng(0)
    return tf.constant(rng.normal(size=(batch, 4, 5, 6)), "float32")


@pytest.mark.parametrize("pooling", ["avg", "max"])
def test_pools_over_positions(pooling) -> None:
    x = features()
    reduce = tf.reduce_mean if pooling == "avg" else tf.reduce_max
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        pooled = EmbeddingHead(2, pooling=pooling).pool(x)
        expected = reduce(x, axis=(1, 2))
    np.testing.assert_allclose(pooled, expected, rtol=1e-6)
    np.testing.assert_allclose(
        tape.gradient(pooled, x), tape.gradient(expected, x)
    )


@pytest.mark.parametrize("pooling", ["avg", "max"])
def test_maps_of_any_size(pooling) -> None:
    inputs = keras.Input((None, None, 6))
    outputs = EmbeddingHead(2, pooling=pooling)(inputs)
    model = keras.Model(inputs, outputs["embedding"])
    assert model(features()).shape == (3, 2)
    assert model(features()[:, :2, :1]).shape == (3, 2)
