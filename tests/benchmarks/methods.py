"""Time and memory of a training step, of every method over the baseline.

One backbone, one batch, one run: methods take turns, step by step, so that
whatever else the machine does is shared by all; memory is measured with
each method in a process of its own.

    python tests/benchmarks/methods.py                      # all
    python tests/benchmarks/methods.py --operations         # exact, no times
    python tests/benchmarks/methods.py --no-memory dcml abe # names with these
    python tests/benchmarks/methods.py --backbone resnet50 --size 96 --batch 32
    python tests/benchmarks/methods.py --steps 50 --jit

Times are medians over the steps after a warm-up, with the quartiles; "CPU" is
the processor time of all threads, which others on the machine disturb less.
Memory is what the model and its optimizer hold, and what a step takes at its
peak on top, without Python, TensorFlow and traced graphs; on a GPU, the peak
of its allocator. The data pipeline is not measured: DiVA's second view costs
reading and augmenting on top.

Operations are millions of multiply-adds per image, to embed it and in a step
of training; they are counted in the graphs, see operations.py, and depend on
no machine. --operations prints nothing else.
"""

import argparse
import ctypes
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_dml import MetricModel, backbones, methods
from keras_dml.utils.tensorflow import tf

sys.path.insert(0, str(Path(__file__).parents[2]))

CLASSES = 32
LOSS = {"name": "margin", "learn_beta": True, "num_classes": CLASSES}

# Of all methods the embedding has 512 dimensions, and four parts where their
# number is an argument: the setting of DCML, attentive grouping and DiVA.
ARGUMENTS = {
    "num_learners": 4,
    "num_groups": 4,
    "num_classes": CLASSES,
    "copy_statistics": True,
}
# What is measured beside every method as it is.
VARIANTS: dict[str, dict[str, Any]] = {
    "attentive_grouping G": {"grouping": "G"},
    "attentive_grouping C": {"grouping": "C"},
    "diva at half size": {"momentum_scale": 0.5},
    "diva without dance": {"tasks": ["discriminative", "shared", "intra"]},
}
# The baseline first, with which the others are compared.
NAMES = sorted(
    # Whitening takes no step.
    {*methods.METHODS, *VARIANTS} - {"whitening"},
    key=lambda x: (x != "baseline", x),
)


def model_of(name: str, options: argparse.Namespace) -> MetricModel:
    keras.utils.set_random_seed(0)
    channels = 1 if options.backbone == "small_convnet" else 3
    backbone = (
        vit(options.size)
        if options.backbone == "vit"
        else backbones.get(
            options.backbone,
            input_shape=(options.size, options.size, channels),
            freeze_batch_norm=options.frozen,
        )
    )
    method = methods.METHODS[name.split()[0]].value
    parameters = inspect.signature(method).parameters
    arguments = {key: x for key, x in ARGUMENTS.items() if key in parameters}
    if "teacher" in parameters:  # As large as the student.
        copy = keras.models.clone_model(backbone)
        arguments["teacher"] = methods.baseline(copy, embedding_dim=512)
    arguments |= VARIANTS.get(name, {})
    dim = 510 if name == "hdc" else 512  # Three models share it.
    model: MetricModel = method(
        backbone, embedding_dim=dim, loss=LOSS, **arguments
    )
    model.compile(keras.optimizers.Adam(1e-5), jit_compile=options.jit)
    return model


class Positions(keras.layers.Layer):
    """Adds a learned vector to each place of a sequence."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.vectors = self.add_weight(shape=shape[1:])

    def call(self, x: Any) -> Any:
        return x + keras.ops.cast(self.vectors, x.dtype)


def vit(size: int, dim: int = 384, depth: int = 12) -> keras.Model:
    """ViT-S/16 to maps of features: no class token."""
    layers = keras.layers
    side = size // 16
    inputs = layers.Input((size, size, 3))
    x = layers.Rescaling(1 / 127.5, -1)(inputs)
    x = layers.Conv2D(dim, 16, 16, use_bias=False)(x)
    x = layers.Reshape((side * side, dim))(x)
    x = Positions()(x)
    for _ in range(depth):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.MultiHeadAttention(dim // 64, 64)(y, y)
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        y = layers.Dense(4 * dim, activation="gelu")(y)
        x = x + layers.Dense(dim)(y)
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    return keras.Model(inputs, layers.Reshape((side, side, dim))(x))


def batch_of(model: MetricModel, size: int) -> tuple[Any, Any]:
    """Images of 32 classes; two views for a model that compares two."""
    rng = np.random.default_rng(0)
    shape = (size, *model.input_shape[1:])
    views = [rng.uniform(0, 255, shape).astype("float32") for _ in range(2)]
    x = dict(zip(("image", "image2"), views, strict=True))
    rows = np.arange(size)
    targets = {
        "label": rows % CLASSES,
        "learner": np.zeros_like(rows),
        "surrogate": rows % 30,
    }
    data = (x if model.momentum_encoder else views[0]), targets
    return keras.tree.map_structure(keras.ops.convert_to_tensor, data)


def step_of(model: MetricModel, size: int) -> Callable[[], None]:
    """One step of training, to the end."""
    data = batch_of(model, size)
    model.make_train_function()

    def run() -> None:
        logs = model.train_function(iter([data]))
        float(logs["loss"])

    return run


Times = dict[str, list[tuple[float, float]]]


def timed(names: list[str], options: argparse.Namespace) -> Times:
    """Wall and processor time of each step, in ms, in turns."""
    steps = {
        name: step_of(model_of(name, options), options.batch) for name in names
    }
    for step in steps.values():
        for _ in range(3):
            step()
    times: Times = {name: [] for name in names}
    for _ in range(options.steps):
        for name, step in steps.items():
            wall, cpu = time.perf_counter(), time.process_time()
            step()
            wall = time.perf_counter() - wall
            cpu = time.process_time() - cpu
            times[name].append((1e3 * wall, 1e3 * cpu))
    return times


def peak_mib(name: str, options: argparse.Namespace) -> float:
    """Memory that one method takes, in this process."""
    model = model_of(name, options)
    step = step_of(model, options.batch)
    for _ in range(3):
        step()
    if tf.config.list_physical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**20
    # What is free goes back to the system, and the high-water mark down.
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    idle = of_process("VmRSS")
    for _ in range(3):
        step()
    held = [*model.variables, *model.optimizer.variables]
    state = sum(np.asarray(v).nbytes for v in held)
    return state / 2**20 + of_process("VmHWM") - idle


def of_process(field: str) -> float:
    """A size that Linux keeps of this process, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(field))
    return int(line.split()[1]) / 1024


def in_a_process(name: str, arguments: list[str]) -> float:
    """`peak_mib` in a process of its own."""
    command = [sys.executable, __file__, *arguments, "--peak-of", name]
    # Tensors are mapped and unmapped one by one: oneDNN has a pool, which
    # holds memory back, and so has malloc for what is small.
    settings = {
        **os.environ,
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "MALLOC_MMAP_THRESHOLD_": "65536",
    }
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env=settings
    )
    peak: float = json.loads(ran.stdout.splitlines()[-1])
    return peak


def report_operations(names: list[str], options: argparse.Namespace) -> None:
    from tests.benchmarks import operations  # It reads graphs of TensorFlow.

    print("| method | to embed an image | step, per image | ratio |")
    print("|---|---|---|---|")
    base = 0.0
    for name in names:
        model = model_of(name, options)
        data = batch_of(model, options.batch)
        step = operations.of_a_step(model, data) / options.batch / 1e6
        base = base or step
        embed = operations.to_embed(model) / 1e6
        print(f"| {name} | {embed:.2f} | {step:.2f} | {step / base:.2f} |")


def report(times: Times, memory: dict[str, float]) -> None:
    print("| method | step, ms | quartiles | ratio | CPU ratio | MiB | ratio |")
    print("|---|---|---|---|---|---|---|")
    first = next(iter(times))
    base_wall, base_cpu = (
        statistics.median(column) for column in zip(*times[first], strict=True)
    )
    for name, rows in times.items():
        wall, cpu = zip(*rows, strict=True)
        low, middle, high = statistics.quantiles(wall, n=4)
        cells = [
            name,
            f"{middle:.1f}",
            f"{low:.1f}–{high:.1f}",
            f"{middle / base_wall:.2f}",
            f"{statistics.median(cpu) / base_cpu:.2f}",
        ]
        if name in memory:
            peak = memory[name]
            cells += [f"{peak:.0f}", f"{peak / memory[first]:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def parser_of(purpose: str) -> argparse.ArgumentParser:
    """What `model_of`, `batch_of` and `chosen` need of the command line."""
    parser = argparse.ArgumentParser(description=purpose.splitlines()[0])
    parser.add_argument("names", nargs="*", help="methods with these in them")
    parser.add_argument("--backbone", default="small_convnet")
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("--jit", action="store_true")
    return parser


def chosen(options: argparse.Namespace) -> list[str]:
    """The baseline, and the methods that were named, or all."""
    return [
        name
        for name in NAMES
        if name == "baseline"
        or not options.names
        or any(part in name for part in options.names)
    ]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--operations", action="store_true")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of:
        print(json.dumps(peak_mib(options.peak_of, options)))
        return
    names = chosen(options)
    report_operations(names, options)
    if options.operations:
        return
    memory = {}
    if not options.no_memory:
        shared = [x for x in sys.argv[1:] if x not in options.names]
        memory = {name: in_a_process(name, shared) for name in names}
    report(timed(names, options), memory)


if __name__ == "__main__":
    main()
