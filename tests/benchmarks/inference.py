"""Time to embed a batch of images by Keras and by OpenVINO, in turns.

    python tests/benchmarks/inference.py --lite0 lite0.keras

It needs the extra `openvino`. Models are ResNet-50 and, with --lite0, a
`.keras` file of EfficientNet-Lite0, both of 224 × 224 pixels, with 128
dimensions of unit length. Keras is `predict_on_batch`, as `embed` calls it.
Printed are medians with the quartiles, in ms, their ratio, that of processor
seconds, which other work on the machine distorts less, and the largest
difference of a component.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_dml import backbones, methods
from keras_dml.embedding.engines import predict_function

ENGINES = "keras", "openvino"

SHAPE = (224, 224, 3)

Times = list[tuple[float, float]]
"""Seconds of each call, by the clock and of the processor."""


def models(lite0: str | None) -> dict[str, keras.Model]:
    keras.utils.set_random_seed(0)
    resnet = keras.applications.ResNet50(
        include_top=False, weights=None, input_shape=SHAPE
    )
    networks = {"ResNet-50": resnet}
    if lite0 is not None:
        networks["Lite0"] = backbones.get(lite0, input_shape=SHAPE)
    return {
        name: methods.baseline(network, embedding_dim=128)
        for name, network in networks.items()
    }


def timed(calls: list[Callable[[], Any]], repeats: int) -> list[Times]:
    found: list[Times] = [[] for _ in calls]
    for _ in range(repeats):
        for call, times in zip(calls, found, strict=True):
            began, used = time.perf_counter(), time.process_time()
            call()
            ended = time.perf_counter(), time.process_time()
            times.append((ended[0] - began, ended[1] - used))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lite0", help="a .keras file")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    for name, model in models(given.lite0).items():
        engines = [predict_function(model, x) for x in ENGINES]
        for size in given.batches:
            x = rng.uniform(0, 255, (size, *SHAPE)).astype("float32")
            rows = [engine(x) for engine in engines for _ in range(2)]
            repeats = given.repeats * (3 if size == 1 else 1)
            calls = [lambda e=e, x=x: e(x) for e in engines]
            each = [np.array(t).T for t in timed(calls, repeats)]
            for engine, (seconds, _) in zip(ENGINES, each, strict=True):
                low, median, high = statistics.quantiles(1e3 * seconds, n=4)
                print(
                    f"{name} batch {size} {engine}: {median:.1f} ms "
                    f"({low:.1f} to {high:.1f})"
                )
            clock, cpu = np.median(each[0], 1) / np.median(each[1], 1)
            difference = np.abs(rows[0] - rows[-1]).max()
            print(
                f"ratio {clock:.2f}, of processor seconds {cpu:.2f}; "
                f"difference {difference:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
