"""Pixels outside the expected range warn once."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones, data, evaluation, methods, search
from keras_dml.model.warnings import expects_bytes, warn_of_pixels
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


@pytest.mark.parametrize(
    ("images", "is_wrong"),
    [
        *((images, True) for images in RANGES.values()),
        (BYTES, False),
        (BYTES.astype("float32"), False),
        (BYTES * np.float32(0.1), False),
        (BYTES * np.float32(1.2) - 20, False),  # As of an interpolation.
        (np.zeros((2, 8, 8, 3), "float32"), False),
        (RNG.uniform(-1, 1, (4, 8, 8, 2)), False),  # Two channels.
        (RNG.uniform(0, 1, (4, 8)), False),
    ],
)
def test_pixels_warn_unless_they_may_be_bytes(images, is_wrong) -> None:
    assert warn_of_pixels(images, "test") == is_wrong


def dataset(x) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, LABELS)).batch(12)


USES = {
    "fit": lambda m, x: m.fit(x, LABELS, verbose=0),
    "evaluate": lambda m, x: m.evaluate(x, LABELS, verbose=0),
    "predict": lambda m, x: m.predict(x, verbose=0),
    "embed": lambda m, x: evaluation.embed(m, x),
    "embed a dataset": lambda m, x: evaluation.embed(m, dataset(x)),
    "fit a dataset": lambda m, x: m.fit(dataset(x), epochs=2, verbose=0),
    "measure": lambda m, x: evaluation.evaluate(m, (x, LABELS)),
    "index": lambda m, x: search.Index.build(m, data.ArraySet(x)),
}


FAST = ("fit", "predict", "embed", "measure", "index")


@pytest.mark.parametrize("use", quick(FAST, USES))
def test_each_use_warns_once_and_not_of_bytes(use, caplog) -> None:
    network = model()
    network.compile("sgd", run_eagerly=True)
    USES[use](network, BYTES.astype("float32"))
    assert not told(caplog)
    for _ in range(1 if use.startswith(("fit", "evaluate")) else 2):
        USES[use](network, RANGES["-1 to 1"])
    (said,) = [x for x in told(caplog) if "Pixels" in x]
    assert "from -1 to 1" in said and "from 0 to 255" in said


def test_models_that_do_not_scale_take_any_range(caplog) -> None:
    inputs = keras.Input((8, 8, 3))
    flat = keras.Model(inputs, keras.layers.Flatten()(inputs))
    evaluation.embed(flat, RANGES["-1 to 1"])
    network = methods.baseline(
        flat, embedding_dim=2, loss="contrastive", head_init="random"
    )
    network.compile("sgd", run_eagerly=True)
    network.fit(RANGES["0 to 1"], LABELS, verbose=0)
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
def test_scaling_layers_expect_bytes(layer, expected) -> None:
    assert expects_bytes(keras.Sequential([layer])) == expected


def test_channels_first_raise() -> None:
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
