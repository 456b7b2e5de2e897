"""Weights of classes that are divided among devices, as the docs show.

    python -m tests.model.sharded
    python -m tests.model.sharded 1000000 512

compares steps of a small table with those of one device; with numbers, prints
what steps of a large table take.
"""

import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from keras_dml import methods

PAGE = Path(__file__).parents[2] / "docs/guides/devices.md"


def divide() -> None:
    """Runs the example of the docs."""
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (example,) = (block for block in blocks if "LayoutMap" in block)
    exec(example, {"keras": keras})


def model_of(classes: int, dim: int, **options: Any) -> Any:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((12,))
    network = keras.Model(inputs, keras.layers.Dense(16)(inputs))
    loss = {"name": "normalized_softmax", "num_classes": classes, **options}
    model = methods.baseline(network, embedding_dim=dim, loss=loss)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
    return model


def fitted(model: Any, classes: int, steps: int) -> list[float]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, 32 * steps)
    x = rng.normal(size=(len(y), 12)).astype("float32")
    losses = []
    for k in range(0, len(y), 32):
        began = time.perf_counter()
        logs = model.train_on_batch(
            x[k : k + 32], y[k : k + 32], return_dict=True
        )
        losses.append(float(logs["loss"]))
        if steps < 5:
            print(f"{time.perf_counter() - began:.2f} s, {logs}", flush=True)
    return losses


def tables(model: Any) -> list[keras.Variable]:
    """Weights of classes and their optimizer slots."""
    (table,) = (v for v in model.variables if "/loss/" in v.path)
    slots = [v for v in model.optimizer.variables if "proxies" in v.path]
    return [table, *slots]


def shapes(variable: keras.Variable) -> set[tuple[int, ...]]:
    return {x.data.shape for x in variable.value.addressable_shards}


def small() -> None:
    results = []
    for divided in (False, True):
        if divided:
            divide()
        for options in ({}, {"class_share": 0.5}):
            model = model_of(64, 8, **options)
            losses = fitted(model, 64, 6)
            values = map(keras.ops.convert_to_numpy, model.variables)
            results.append((losses, list(values)))
            quarter = (16, 8) if divided else (64, 8)
            for variable in tables(model)[:2]:
                assert shapes(variable) == {quarter}, variable.path
    for expected, (losses, values) in zip(
        results[:2], results[2:], strict=True
    ):
        np.testing.assert_allclose(losses, expected[0], rtol=1e-6)
        for value, other in zip(values, expected[1], strict=True):
            np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6)


def large(classes: int, dim: int) -> None:
    divide()
    began = time.perf_counter()
    model = model_of(classes, dim)
    print(f"{time.perf_counter() - began:.1f} s to create", flush=True)
    fitted(model, classes, 4)
    for variable in tables(model):
        print(variable.path, variable.shape, shapes(variable))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{peak:.1f} GiB at most, {jax.device_count()} devices")


if __name__ == "__main__":
    large(*map(int, sys.argv[1:])) if sys.argv[1:] else small()
