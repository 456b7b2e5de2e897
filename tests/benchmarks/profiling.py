"""Where the time of a training step goes: parts of the model, kinds of work.

The setting of methods.py: one backbone, one batch. TensorFlow's profiler times
every operation of a step; with one thread for all, the time that an operation
takes is its CPU time.

    python tests/benchmarks/profiling.py                  # all methods
    python tests/benchmarks/profiling.py abe --rows 10    # names with these

Of each operation, the least time over the steps counts, because other work on
the machine only adds to it; operations that contain others count without them.
Gradients belong to the part whose gradients they are. What Python does between
two operations is not in the table.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[2]))

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tests.benchmarks import methods

KINDS = {
    "Conv": "convolutions",
    "MatMul": "matrix products",
    "Einsum": "matrix products",
    "Pool": "pooling",
}
"""Kinds of work by what is in the type of an operation; others work element by
element."""

OUTER = ("gradient_tape", "PartitionedCall", "StatefulPartitionedCall")
"""Scopes around those of the model."""

PARTS = {
    "momentum_encoder": "momentum network",
    "metric_model": "teacher",
    "head": "head",
    "objective": "objective",
}
"""Parts of a model by the start of its scopes; see also `part_of`."""


def profiled(name: str, options: argparse.Namespace) -> Counter[str]:
    """Milliseconds of a step by part and kind of work."""
    step = methods.step_of(methods.model_of(name, options), options.batch)
    for _ in range(3):
        step()
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        for _ in range(options.steps):
            step()
        tf.profiler.experimental.stop()
        (file,) = Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace()
        space.ParseFromString(file.read_bytes())
    times: dict[str, list[float]] = defaultdict(list)
    for operation, time in own_times(space):
        times[operation].append(time)
    by_part: Counter[str] = Counter()
    for operation, own in times.items():
        # An operation in a loop runs several times per step.
        part = part_of(operation, options.backbone)
        by_part[part] += min(own) * len(own) / options.steps
    return by_part


def own_times(space: Any) -> Iterator[tuple[str, float]]:
    """Operations, as "name:type", and the milliseconds they took, without
    those of operations that they contain."""
    for plane in space.planes:
        for line in plane.lines:
            events = [
                (
                    event.offset_ps / 1e9,
                    event.duration_ps / 1e9,
                    plane.event_metadata[event.metadata_id].name,
                )
                for event in line.events
            ]
            yield from _without_contained(x for x in events if is_one(x[2]))


def is_one(event: str) -> bool:
    """Whether an event is an operation: "name:type"."""
    name, _, kind = event.rpartition(":")
    return bool(name) and not name.endswith(":") and kind.isidentifier()


def part_of(operation: str, backbone: str) -> str:
    """The part of the model and the kind of work of an operation."""
    name, _, kind = operation.rpartition(":")
    work = next((KINDS[x] for x in KINDS if x in kind), "element by element")
    scopes = [x for x in name.split("/") if x not in OUTER]
    parts = {**PARTS, backbone: "backbone"}
    for start, part in parts.items():
        if scopes and scopes[0].startswith(start):
            return f"{part}, {work}"
    return "update and sums of gradients"


def _without_contained(
    events: Iterable[tuple[float, float, str]],
) -> Iterator[tuple[str, float]]:
    around: list[tuple[float, str]] = []  # Ends and names.
    own: dict[int, float] = {}
    for start, time, name in sorted(events, key=lambda x: (x[0], -x[1])):
        while around and around[-1][0] <= start:
            yield around.pop()[1], own.pop(len(around))
        if around:
            own[len(around) - 1] -= time
        own[len(around)] = time
        around.append((start + time, name))
    while around:
        yield around.pop()[1], own.pop(len(around))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="methods with these in them")
    parser.add_argument("--backbone", default="small_convnet")
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rows", type=int, default=3, help="parts per method")
    parser.add_argument("--frozen", action="store_true")
    options = parser.parse_args()
    options.jit = False
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print("| method | largest parts of a step's CPU time |")
    print("|---|---|")
    for name in methods.NAMES:
        if options.names and not any(x in name for x in options.names):
            continue
        times = profiled(name, options)
        whole = sum(times.values())
        largest = [
            f"{part} {100 * time / whole:.0f} %"
            for part, time in times.most_common(options.rows)
        ]
        print(f"| {name} | {'; '.join(largest)} |", flush=True)


if __name__ == "__main__":
    main()
