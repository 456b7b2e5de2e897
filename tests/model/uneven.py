"""Batches that devices of JAX do not divide: `python -m tests.model.uneven`."""

import keras
import numpy as np
import pytest

import keras_dml as dml
from keras_dml.evaluation import embed

X = np.random.default_rng(0).normal(size=(42, 8)).astype("float32")
Y = np.repeat(np.arange(14), 3)


class Batches(keras.utils.PyDataset):
    """Three batches of some sizes; a file of the batch `bad` is missing."""

    def __init__(self, *sizes: int, bad: int | None = None) -> None:
        super().__init__()
        self.sizes, self.bad = sizes, bad

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int):
        if index == self.bad:
            raise OSError("no such file")
        return X[: self.sizes[index]], Y[: self.sizes[index]]


class Interrupted(keras.callbacks.Callback):
    def on_test_batch_end(self, batch, logs=None) -> None:
        raise KeyboardInterrupt


def small() -> dml.MetricModel:
    network = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8)])
    model = dml.methods.baseline(network, embedding_dim=8)
    model.compile()
    return model


PLAIN = {"batch_size": 8, "balanced": False, "verbose": 0}
QUIET = {"verbose": 0, "shuffle": False}
UNEVEN = "each of 4 devices. Received: [2679]"
FAILING = {
    "balanced": (lambda m: m.fit(X, Y, 6, verbose=0), UNEVEN),
    "a rest": (lambda m: m.fit(X, Y, **PLAIN), UNEVEN),
    "PyDataset": (lambda m: m.fit(Batches(8, 7), **QUIET), UNEVEN),
    "validation": (
        lambda m: m.fit(
            X, Y, 8, verbose=0, validation_data=Batches(8, 6), epochs=2
        ),
        UNEVEN,
    ),
    "evaluate": (lambda m: m.evaluate(Batches(9), verbose=0), UNEVEN),
    "predict": (lambda m: m.predict(X[:7], verbose=0), UNEVEN),
    "train_on_batch": (lambda m: m.train_on_batch(X[:7], Y[:7]), UNEVEN),
    "a bad file": (lambda m: m.fit(Batches(8, 8, bad=0), **QUIET), "no such"),
    "a bad file of evaluate": (
        lambda m: m.evaluate(Batches(8, 8, bad=0), verbose=0),
        "no such file",
    ),
    "Ctrl-C": (
        lambda m: m.evaluate(
            Batches(8, 8), verbose=0, callbacks=[Interrupted()]
        ),
        None,
    ),
}


def check(name: str) -> None:
    fail, message = FAILING[name]
    model = small()
    before = model.get_weights()
    with pytest.raises((ValueError, OSError, KeyboardInterrupt), match=message):
        fail(model)
    after = model.get_weights()
    if name not in ("a rest", "PyDataset", "validation"):  # Which had steps.
        for a, b in zip(after, before, strict=True):
            np.testing.assert_array_equal(a, b)
    assert np.isfinite(embed(model, X[:7])).all()
    model.fit(X[:40], Y[:40], batch_size=8, verbose=0)
    model.predict(X[:8], verbose=0)


if __name__ == "__main__":
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    for name in FAILING:
        check(name)
        print(name, "ends with a model that has its values")
