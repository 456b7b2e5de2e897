import keras
import numpy as np
import pytest

from keras_dml.layers import EmbeddingSlicer


def features(batch: int = 5, channels: int = 7) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(batch, channels)).astype("f4")


def by_hand(layer: EmbeddingSlicer, x: np.ndarray) -> np.ndarray:
    """One dense layer, cut, each slice made unit, joined, made unit."""
    slices = []
    for kernel, bias in zip(layer.kernels, layer.biases, strict=True):
        y = x @ kernel.numpy() + bias.numpy()
        slices.append(y / np.linalg.norm(y, axis=1, keepdims=True))
    return np.concatenate(slices, axis=1) / np.sqrt(len(slices))


@pytest.mark.parametrize(("dim", "slices"), [(8, 4), (10, 4), (5, 1), (9, 9)])
def test_slicer_matches_slices_cut_by_hand(dim: int, slices: int) -> None:
    layer = EmbeddingSlicer(dim, slices, bias_initializer="normal")
    x = features()
    embedding = layer(x).numpy()
    np.testing.assert_allclose(embedding, by_hand(layer, x), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(embedding, axis=1), 1, atol=1e-6)


def test_merge_undoes_split() -> None:
    layer = EmbeddingSlicer(10, 4)
    assert layer.sizes == [3, 3, 3, 1]
    embedding = layer(features())
    parts = layer.split(embedding).numpy()
    assert parts.shape == (5, 4, 3)
    np.testing.assert_allclose(np.linalg.norm(parts, axis=2), 1, atol=1e-6)
    assert np.all(parts[:, 3, 1:] == 0)
    again = layer.merge(layer.split(embedding))
    np.testing.assert_allclose(again, embedding, atol=1e-7)


def test_slicer_starts_as_one_dense_layer() -> None:
    initializer = keras.initializers.GlorotUniform(seed=3)
    layer = EmbeddingSlicer(12, 3, kernel_initializer=initializer)
    layer.build((None, 7))
    whole = keras.initializers.GlorotUniform(seed=3)((7, 12))
    cut = np.concatenate([k.numpy() for k in layer.kernels], axis=1)
    np.testing.assert_array_equal(cut, whole)


def test_gradient_of_one_slice_reaches_that_slice_only() -> None:
    import tensorflow as tf

    layer = EmbeddingSlicer(8, 4)
    x = features()
    with tf.GradientTape() as tape:
        part = layer.split(layer(x))[:, 2]
        loss = tf.reduce_sum(part * np.arange(2, dtype="f4"))
    gradients = tape.gradient(loss, layer.kernels)
    norms = [float(tf.norm(g)) for g in gradients]
    assert norms[2] > 0
    assert norms[0] == norms[1] == norms[3] == 0


def test_zero_features_give_zero_slices_and_finite_gradients() -> None:
    import tensorflow as tf

    layer = EmbeddingSlicer(8, 4)
    x = tf.zeros((2, 7))
    layer(x)
    with tf.GradientTape() as tape:
        embedding = layer(x)
        loss = tf.reduce_sum(embedding)
    assert np.all(embedding.numpy() == 0)
    for gradient in tape.gradient(loss, layer.trainable_variables):
        assert np.all(np.isfinite(gradient))
