"""Tests of the encoder of byte tokens."""

import keras
import numpy as np

from keras_dml import backbones
from keras_dml.data import byte_tokens


def test_padding_changes_nothing() -> None:
    short = backbones.get("small_text_encoder", input_shape=(8,))
    long = backbones.get("small_text_encoder", input_shape=(20,))
    long.set_weights(short.get_weights())
    texts = ["abc", "12345678"]
    features = short(byte_tokens(texts, 8))
    padded = long(byte_tokens(texts, 20))
    np.testing.assert_allclose(padded[:, :8], features, atol=1e-6)
    assert not np.any(padded[:, 8:])
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(padded._keras_mask).sum(axis=1), [3, 8]
    )


def test_order_of_letters_counts() -> None:
    encoder = backbones.get("small_text_encoder")
    one, two = encoder(byte_tokens(["abcd", "badc"], 48)).numpy().sum(axis=1)
    assert np.abs(one - two).max() > 0.01
