import keras
import numpy as np

from keras_dml.layers import FrozenBatchNormalization


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
