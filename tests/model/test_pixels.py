"""Pixels in another range than the model expects are told, once."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones, data, evaluation, methods, search
from keras_dml.model.pixels import expects_bytes, wrong_range
from tests.conftest import quick
from tests.model.test_keras_contract import told

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (12, 8, 8, 3)).astype("uint8")
LABELS = np.repeat(np.arange(3), 4)
RANGES = {
    "0 to 1": BYTES / np.float32(255),
    "-1 to 1": BYTES / np.float32(127.5) - 1,
    "standardized": (BYTES - np.float32(120)) / 58,
    "minus a mean": BYTES - np.float32([104, 117, 123]),
}


def model() -> keras.Model:
    backbone = backbones.small_convnet((8, 8, 3), filters=(2,))
    return methods.baseline(backbone, embedding_dim=2, loss="contrastive")


@pytest.mark.parametrize("name", RANGES)
def test_ranges_that_are_not_bytes(name) -> None:
    assert wrong_range(RANGES[name]) is not None


@pytest.mark.parametrize(
    "images",
    [
        BYTES,
        BYTES.astype("float32"),
        BYTES * np.float32(0.1),
        BYTES * np.float32(1.2) - 20,  # As of an interpolation.
        np.zeros((2, 8, 8, 3), "float32"),
        RNG.uniform(-1, 1, (4, 8, 8, 2)),  # No images: two channels.
        RNG.uniform(0, 1, (4, 8)),
    ],
)
def test_ranges_that_may_be_bytes(images) -> None:
    assert wrong_range(images) is None


def dataset(x) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, LABELS)).batch(4)


class Batches(keras.utils.PyDataset):
    """Batches of four images."""

    def __init__(self, x) -> None:
        super().__init__()
        self.x = x

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int):
        return self.x[4 * index : 4 * index + 4], LABELS[:4]


USES = {
    "fit": lambda m, x: m.fit(x, LABELS, verbose=0),
    "evaluate": lambda m, x: m.evaluate(x, LABELS, verbose=0),
    "predict": lambda m, x: m.predict(x, verbose=0),
    "predict a dataset": lambda m, x: m.predict(dataset(x), verbose=0),
    "predict inputs alone": lambda m, x: m.predict(
        dataset(x).map(lambda x, _: x), verbose=0
    ),
    "predict a PyDataset": lambda m, x: m.predict(Batches(x), verbose=0),
    "embed": lambda m, x: evaluation.embed(m, x),
    "embed a dataset": lambda m, x: evaluation.embed(m, dataset(x)),
    "measure": lambda m, x: evaluation.evaluate(m, (x, LABELS)),
    "index": lambda m, x: search.Index.build(m, data.ArraySet(x)),
}


FAST = ("fit", "predict", "predict a dataset", "embed", "measure", "index")


@pytest.mark.parametrize("use", quick(FAST, USES))
def test_all_uses_tell_once_and_not_of_bytes(use, caplog) -> None:
    network = model()
    network.compile("sgd", run_eagerly=True)
    USES[use](network, BYTES.astype("float32"))
    assert not told(caplog)
    for _ in range(1 if use in ("fit", "evaluate") else 2):
        USES[use](network, RANGES["-1 to 1"])
    (said,) = [x for x in told(caplog) if "Pixels" in x]
    assert "from -1 to 1" in said and "from 0 to 255" in said


def test_models_that_do_not_scale_take_any_range(caplog) -> None:
    inputs = keras.Input((8, 8, 3))
    network = keras.Model(inputs, keras.layers.Flatten()(inputs))
    evaluation.embed(network, RANGES["-1 to 1"])
    assert not told(caplog)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (keras.layers.Rescaling(1 / 127.5, -1), True),
        (keras.layers.Rescaling(2.0), False),
        (keras.layers.Normalization(mean=[120.0], variance=[3000.0]), True),
        (keras.layers.Normalization(mean=[0.5], variance=[0.1]), False),
    ],
)
def test_which_layers_expect_bytes(layer, expected) -> None:
    assert expects_bytes(keras.Sequential([layer])) == expected


def test_predict_of_batches_that_are_looked_at_is_that_of_arrays() -> None:
    network, x = model(), RANGES["0 to 1"]
    found = [network.predict(given, verbose=0) for given in (dataset(x), x)]
    np.testing.assert_allclose(*found, atol=1e-6)
    found = network.predict(dataset(x).repeat(2), verbose=0)
    assert found.shape == (24, 2)


def test_channels_first_are_refused() -> None:
    network, first = model(), np.moveaxis(BYTES[0], -1, 0)
    index = search.Index.build(network, data.ImageSet(BYTES))
    for use in (
        lambda: index.search(first, k=1),
        lambda: index.add(first),
        lambda: evaluation.embed(network, first),
        lambda: evaluation.embed(network, np.moveaxis(BYTES, -1, 1)),
        lambda: evaluation.embed(network, (first, LABELS[::4])),
        lambda: evaluation.evaluate(network, (first, [0, 1, 1])),
        lambda: evaluation.evaluate(
            network, (BYTES, LABELS), gallery=(first, [0, 1, 1])
        ),
    ):
        with pytest.raises(ValueError, match="channels last.*moveaxis"):
            use()
    # Three gray images, and as many as are not three.
    assert evaluation.embed(network, BYTES[:3, :, :, :1]).shape == (3, 2)
    assert evaluation.embed(network, BYTES[:5, :, :, 0]).shape == (5, 2)
