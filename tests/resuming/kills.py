"""Kills trainings at random moments and compares what they end with.

    python -m tests.resuming.kills FOLDER KILLS [METHOD…]
        [--precision POLICY] [--replicas COUNT]

Every training is killed by SIGKILL so many times, goes on each time, and is
compared with one that was left alone: weights, slots of the optimizer, states
of random generators, queues, logs, to the last bit. The table is Markdown. The
status is 1 if anything differs.
The moments are uniform over the time from the first step of a process to the
end of its training. The processes are forks of one that has computed nothing.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

import keras_dml
from keras_dml.callbacks import Resume
from keras_dml.distribution import use_devices
from tests.forks import exit_status, forked
from tests.resuming.trainings import METHODS, bits, different, rows, train

PAUSE = 0.05
"""Seconds after each step, so that most kills hit the training itself."""


class Tell(keras.callbacks.Callback):
    """Reports the first step through a pipe, and slows every step down."""

    def __init__(self, pipe: int) -> None:
        super().__init__()
        self.pipe = pipe

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        os.write(self.pipe, b".")
        time.sleep(PAUSE)


class Setting(NamedTuple):
    """A training and its options."""

    name: str
    precision: str
    replicas: int


def begin(setting: Setting, folder: Path) -> tuple[int, int]:
    """Starts or resumes a training; returns the process and its pipe."""
    read_end, tell = os.pipe()
    process = forked(run, setting, folder, tell)
    os.close(tell)
    return process, read_end


def run(setting: Setting, folder: Path, tell: int) -> None:
    keras.config.set_dtype_policy(setting.precision)
    folder.mkdir(exist_ok=True)
    both = Resume(folder / "state", every=2), Tell(tell)
    model = train(
        setting.name, folder, *both, epochs=4, steps=6,
        strategy=use_devices(setting.replicas),
    )  # fmt: skip
    values = {k: np.asarray(v) for k, v in bits(model).items()}
    np.savez(folder / "bits.npz", **{
        str(i): value for i, value in enumerate(values.values())
    })  # fmt: skip
    (folder / "done").touch()


def whole(setting: Setting, folder: Path) -> float:
    """Trains without a kill; returns the seconds of the steps."""
    process, pipe = begin(setting, folder)
    os.read(pipe, 1)
    began = time.perf_counter()
    if exit_status(process):
        raise RuntimeError(f"{setting.name} fails.")
    return time.perf_counter() - began


def killed(
    setting: Setting, folder: Path, seconds: float, kills: int, rng: Any
) -> int:
    """Kills a training repeatedly; returns the number of kills."""
    for count in range(kills):
        process, pipe = begin(setting, folder)
        os.read(pipe, 1)
        time.sleep(rng.uniform(0, seconds / 2))
        os.kill(process, signal.SIGKILL)
        status = exit_status(process)
        os.close(pipe)
        if status == 0 or (folder / "done").exists():
            return count
        if status != -signal.SIGKILL:
            raise RuntimeError(f"{setting.name} fails.")
    if exit_status(begin(setting, folder)[0]):
        raise RuntimeError(f"{setting.name} fails.")
    return kills


def compared(one: Path, two: Path) -> list[str]:
    with np.load(one / "bits.npz") as a, np.load(two / "bits.npz") as b:
        changed = different(dict(a), dict(b))
    return changed + ([] if rows(one) == rows(two) else ["metrics.csv"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("kills", type=int)
    parser.add_argument("methods", nargs="*", default=list(METHODS))
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--replicas", type=int, default=1)
    arguments = parser.parse_args()
    keras_dml.import_parts()
    rng = np.random.default_rng(0)
    print(
        "| method | precision | replicas | trainings | kills | arrays | "
        "different |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    any_changed = False
    for name in arguments.methods:
        setting = Setting(name, arguments.precision, arguments.replicas)
        folder = arguments.folder / "-".join(map(str, setting))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        alone = folder / "alone"
        seconds = whole(setting, alone)
        count, trainings, changed = 0, 0, []
        while count < arguments.kills:
            trainings += 1
            other = folder / f"killed-{trainings}"
            left = arguments.kills - count
            count += killed(setting, other, seconds, left, rng)
            changed += compared(alone, other)
        with np.load(alone / "bits.npz") as arrays:
            size = len(arrays.files)
        print(
            f"| {' | '.join(map(str, setting))} | {trainings} | {count} | "
            f"{size} | {len(changed)} |",
            flush=True,
        )
        if changed:
            any_changed = True
            print(changed, file=sys.stderr)
    sys.exit(any_changed)


if __name__ == "__main__":
    main()
