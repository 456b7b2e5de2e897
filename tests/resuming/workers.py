"""Trainings on two workers, one of which is ended, and which go on.

    python -m tests.resuming.workers FOLDER METHOD…

Both workers are on this machine. One of them gets SIGTERM within an epoch,
and when they have gone on SIGKILL, within an epoch. Prints a line of JSON for
each method: how the processes ended, the number of arrays compared with a
training that was left alone, and which are different in the end. The
processes are forks of one that has computed nothing.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_dml
from keras_dml.callbacks import Resume
from keras_dml.distribution import connect
from tests.distribution.test_workers import free_ports
from tests.forks import exit_status, forked
from tests.resuming.trainings import bits, different, rows, train

LEGS = [
    {(0, 1): signal.SIGTERM},
    {(1, 1): signal.SIGKILL},
    {},
]
"""Signals that worker 1 gets, by epoch and step, each time it is started."""


class Send(keras.callbacks.Callback):
    """Sends this process signals at the end of steps."""

    def __init__(self, signals: dict[tuple[int, int], signal.Signals]) -> None:
        super().__init__()
        self.signals = signals
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        sent = self.signals.get((self._epoch, batch))
        if sent is not None:
            os.kill(os.getpid(), sent)


def work(name: str, folder: Path, index: int, ports: Any, signals: Any) -> None:
    own = folder / str(index)
    own.mkdir(exist_ok=True, parents=True)
    hosts = [f"127.0.0.1:{port}" for port in ports]
    sends = [Send(signals)] if index else []
    strategy = connect(workers=hosts, index=index)
    resume = Resume(folder / "state", every=1)
    model = train(name, own, resume, *sends, strategy=strategy)
    found = {k: np.asarray(v) for k, v in bits(model).items()}
    values = {str(i): value for i, value in enumerate(found.values())}
    np.savez(own / "bits.npz", **values)


def both(name: str, folder: Path, signals: Any) -> list[int]:
    """Two workers; returns their exit statuses, −9 if killed."""
    ports = free_ports(2)
    processes = [
        forked(work, name, folder, index, ports, signals) for index in (0, 1)
    ]
    return list(map(exit_status, processes))


def saved(folder: Path) -> dict[str, Any]:
    with np.load(folder / "bits.npz") as arrays:
        return dict(arrays)


def main(folder: str, *names: str) -> None:
    keras_dml.import_parts()
    for name in names:
        whole, killed = Path(folder) / name, Path(folder) / f"{name}-killed"
        began = time.perf_counter()
        statuses = [both(name, whole, {})]
        if statuses != [[0, 0]]:
            raise RuntimeError(f"{name} fails.")
        statuses += [both(name, killed, signals) for signals in LEGS]
        expected = saved(whole / "0")
        changed = [
            f"worker {index}: {key}"
            for index in (0, 1)
            for key in different(expected, saved(killed / str(index)))
        ]
        if rows(whole / "0") != rows(killed / "0"):
            changed.append("metrics.csv")
        seconds = round(time.perf_counter() - began)
        found = [name, statuses, len(expected), changed, seconds]
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
