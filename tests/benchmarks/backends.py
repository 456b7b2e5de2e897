"""Time of a training step on JAX over TensorFlow's: steps take turns.

    python tests/benchmarks/backends.py
    python tests/benchmarks/backends.py --backbone efficientnet_b0 --size 96 \
        --batch 16

Each backend has a process of its own, and both the same method, network and
batch. Printed are the medians, in ms, and their ratio.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BACKENDS = "tensorflow", "jax"


def work(options: argparse.Namespace) -> None:
    """Does a step, and prints its milliseconds, for each line that comes."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    import keras
    import numpy as np

    from tests.benchmarks import methods

    # Keras runs operation by operation on JAX otherwise.
    options.jit = keras.backend.backend() == "jax"
    model = methods.model_of(options.method, options)
    data = methods.batch_of(model, options.batch)
    x, y = keras.tree.map_structure(np.asarray, data)
    for _ in range(3):
        model.train_on_batch(x, y)
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        float(model.train_on_batch(x, y, return_dict=True)["loss"])
        print(1e3 * (time.perf_counter() - began), flush=True)


def begun(backend: str) -> Any:
    command = [sys.executable, __file__, *sys.argv[1:], "--worker"]
    worker = subprocess.Popen(
        command,
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    worker.stdout.readline()
    return worker


def step(worker: Any) -> float:
    worker.stdin.write("\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="baseline")
    parser.add_argument("--backbone", default="small_convnet")
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.frozen = False
    if options.worker:
        work(options)
        return
    workers = [begun(backend) for backend in BACKENDS]
    times = [list(map(step, workers)) for _ in range(options.steps)]
    for worker in workers:
        worker.stdin.close()
    found = [statistics.median(column) for column in zip(*times, strict=True)]
    print(options.backbone, options.size, options.batch)
    for backend, median in zip(BACKENDS, found, strict=True):
        print(f"{backend}: {median:.1f} ms")
    print(f"ratio: {found[1] / found[0]:.2f}")


if __name__ == "__main__":
    main()
