"""Memory and time of training with many classes, and with large batches.

Each case has a process of its own, and is measured after a small one of the
same kind: what is printed is the peak of memory above that, from the making
of the model on, and the median of some steps after a warm-up.

    python tests/benchmarks/scale.py classes          # share by classes
    python tests/benchmarks/scale.py accumulation     # parts of a batch
    python tests/benchmarks/scale.py classes --cpu-time

`--cpu-time` takes processor time, for a machine that is busy.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_dml import MetricModel, backbones, losses, methods

DIM = 128
BATCH = 64
"""Of the cases with many classes."""
CLASSES = (10_000, 100_000, 1_000_000)
SHARES = (1.0, 0.1, 0.01)
LARGE_BATCH = 4096
PARTS = (1, 8, 32)
SIDE = 64
"""Of the images of the large batch, in pixels."""
STEPS, WARM_UP = 5, 2


def classifier(num_classes: float, share: float) -> Callable[[], Any]:
    """A step of Adam on vectors, by ArcFace."""
    inputs = keras.Input((DIM,))
    model = methods.baseline(
        keras.Model(inputs, keras.layers.Dense(DIM)(inputs)),
        embedding_dim=DIM,
        loss=losses.ArcFaceLoss(int(num_classes), class_share=share),
    )
    model.compile("adam", jit_compile=False)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(BATCH, DIM)).astype("float32")
    return _step(model, x, generator.integers(0, num_classes, BATCH))


def large_batch(size: float, parts: float) -> Callable[[], Any]:
    """A step of Adam on images, by the contrastive loss."""
    model = methods.baseline(
        backbones.small_convnet((SIDE, SIDE, 3)),
        embedding_dim=DIM,
        loss="contrastive",
        accumulate=int(parts),
    )
    model.compile("adam", jit_compile=False)
    shape = (int(size), SIDE, SIDE, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, "uint8")
    return _step(model, images, np.arange(size, dtype="int64") // 4)


def _step(model: MetricModel, x: Any, labels: Any) -> Callable[[], Any]:
    return lambda: model.train_on_batch(x, labels)


CASES = {
    "classes": (
        classifier,
        (BATCH, 1.0),
        [(c, share) for c in CLASSES for share in SHARES],
    ),
    "accumulation": (
        large_batch,
        (8, 2),
        [(LARGE_BATCH, parts) for parts in PARTS],
    ),
}
"""What is measured → (what makes a step, a small case, all cases)."""


def measure(kind: str, size: float, other: float, cpu_time: bool) -> None:
    """Prints milliseconds of a step, and the peak in MiB."""
    make, small, _ = CASES[kind]
    make(*small)()
    before = _peak()
    step = make(size, other)
    clock = time.process_time if cpu_time else time.perf_counter
    taken = []
    for _ in range(WARM_UP + STEPS):
        begin = clock()
        step()
        taken.append(1e3 * (clock() - begin))
    print(statistics.median(taken[WARM_UP:]), _peak() - before)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=CASES)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--measure", nargs=2, type=float, metavar="NUMBER")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.kind, *arguments.measure, arguments.cpu_time)
        return
    clock = ["--cpu-time"] * arguments.cpu_time
    names = {"classes": ("classes", "share"), "accumulation": ("N", "parts")}
    first, second = names[arguments.kind]
    print(f"{first:>10}{second:>8}{'ms a step':>12}{'peak MiB':>10}")
    for size, other in CASES[arguments.kind][2]:
        command = [sys.executable, __file__, arguments.kind, *clock]
        result = subprocess.run(
            [*command, "--measure", str(size), str(other)],
            check=True,
            capture_output=True,
            text=True,
        )
        step, peak = map(float, result.stdout.split()[-2:])
        print(f"{size:10}{other:8}{step:12.0f}{peak:10.0f}", flush=True)


if __name__ == "__main__":
    main()
