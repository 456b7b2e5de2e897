"""`model.encoder`: a plain Keras model, independent of this package."""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_dml import backbones, methods
from tests.conftest import blobs

PIXELS = blobs().pixels[:4, ..., None].astype("float32")


def backbone() -> keras.Model:
    return backbones.small_convnet((16, 16, 1), filters=(4, 8, 8))


@pytest.mark.parametrize("method", ["baseline", "mic"])
def test_files_of_the_first_version_load(method) -> None:
    # There, weights of a head are in the encoder, whose operations may have
    # places of their own, or which has the whole head as one layer.
    folder = Path(__file__).parent / "first_version"
    model = keras.models.load_model(folder / f"{method}.keras")
    x = np.arange(8, dtype="float32").reshape(2, 4) - 3
    expected = [[0.6709222, 0.7415277], [-0.5755, 0.8178019]]
    np.testing.assert_allclose(model(x), expected, atol=1e-6)
    np.testing.assert_allclose(model.encoder(x), expected, atol=1e-6)


def test_encoder_shares_weights_and_leaves_the_model_unchanged() -> None:
    model = methods.baseline(backbone(), embedding_dim=4, loss="contrastive")
    encoder = model.encoder
    names = [v.path for v in model.weights]
    model.compile("sgd", run_eagerly=True)
    model.fit(PIXELS, np.array([0, 0, 1, 1]), verbose=0)
    np.testing.assert_array_equal(encoder(PIXELS), model(PIXELS))
    assert [v.path for v in model.weights] == names
    assert {id(v) for v in encoder.weights} <= {id(v) for v in model.weights}


@pytest.mark.parametrize("pooling", ["avg", "max", "gem", "cls"])
def test_encoder_heeds_masks_of_tokens(pooling) -> None:
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True)(inputs)
    model = methods.baseline(
        keras.Model(inputs, x), embedding_dim=3, pooling=pooling
    )
    ids = np.array([[1, 2, 0, 0], [3, 4, 5, 6]])
    np.testing.assert_array_equal(model.encoder(ids), model(ids))


def test_encoder_returns_float32_in_half_precision() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    model = methods.baseline(backbone(), embedding_dim=4)
    embeddings = model.encoder(PIXELS)
    assert embeddings.dtype == "float32"
    np.testing.assert_array_equal(embeddings, model(PIXELS))


LOAD = """
import sys, numpy as np, keras
for name in sys.argv[1:]:
    model = keras.models.load_model(f"{name}.keras")
    x = np.load(f"{name}.npy")
    np.save(f"{name}.npy", model.predict(x, verbose=0))
assert not [x for x in sys.modules if x.startswith("keras_dml")]
"""


@pytest.mark.slow
def test_encoder_loads_in_keras_alone(tmp_path) -> None:
    models = {
        "baseline": methods.baseline(backbone(), embedding_dim=8),
        "mobilenet": methods.baseline(  # Preprocessing is without weights.
            backbones.get("mobilenet", input_shape=(32, 32, 3)), pooling="max"
        ),
    }
    expected = {}
    for name, model in models.items():
        shape = 2, *model.input_shape[1:]
        pixels = np.random.default_rng(0).uniform(0, 255, shape)
        np.save(tmp_path / f"{name}.npy", pixels.astype("float32"))
        model.encoder.save(tmp_path / f"{name}.keras")
        expected[name] = model.predict(pixels, verbose=0)
    command = [sys.executable, "-c", LOAD, *models]
    subprocess.run(command, cwd=tmp_path, check=True)
    for name, embeddings in expected.items():
        stored_embeddings = np.load(tmp_path / f"{name}.npy")
        np.testing.assert_allclose(stored_embeddings, embeddings, atol=1e-6)
