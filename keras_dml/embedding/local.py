"""A pool of processes on this machine."""

import contextlib
import functools
import os
import runpy
import signal
import tempfile
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

from keras_dml.embedding import local_worker
from keras_dml.embedding.workers import (
    Begin,
    InWorker,
    Lost,
    Worker,
    WorkerPool,
    sharing,
)
from keras_dml.utils.provenance import usable_cores

_SHOWN = 2000
"""Bytes of a log that an error shows."""


class LocalWorkers(WorkerPool):
    """Runs tasks in processes on this machine.

    Processes are started when there are tasks for them, share the cores, take
    turns at the GPUs, and end with this process, however it ends. If one dies,
    it is replaced, and its task is repeated up to three times.

    Workers import the modules needed to unpickle the work from the same places
    as this process; they do not run its script again.

    Args:
        count: Number of processes.

    Raises:
        OSError: From `run`, if processes or files cannot be created.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def _open(
        self, work: bytes, undo: contextlib.ExitStack
    ) -> tuple[Begin, int]:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory()))
        (folder / "work").write_bytes(work)
        threads = sharing(max(1, usable_cores() // self.count))

        def begin(number: int) -> Worker:
            return _Process(folder, number, threads | gpu_of(number))

        return begin, self.count


class _Process(Worker):
    """A worker: an executor with a single process.

    Tasks and answers are in files. If a process dies while a pipe to it is
    full, an executor waits forever.
    """

    def __init__(
        self, folder: Path, number: int, environment: dict[str, str]
    ) -> None:
        from joblib.externals.loky import ProcessPoolExecutor

        self.number = number
        self._task = folder / f"{number}.task"
        self._log = folder / f"{number}.log"
        self._future: Future[Any]
        arguments = os.getpid(), str(self._log)
        self._executor = ProcessPoolExecutor(
            1,
            initializer=runpy.run_path,
            initargs=(local_worker.__file__, {"ARGUMENTS": arguments}, "begin"),
            env=environment,
        )

    def do(self, task: bytes | None, name: str) -> Future[Any]:
        if task is not None:
            self._task.write_bytes(task)
        try:
            self._future = self._executor.submit(
                _do, self._task, task is None, name
            )
        except BrokenExecutor as error:  # It died while it had nothing to do.
            self._future = Future()
            self._future.set_exception(error)
        return self._future

    def answer(self, future: Future[Any]) -> bytes:
        try:
            future.result()
        except BrokenExecutor as error:
            raise Lost(f"ended. {error}\n{self._printed()}") from error
        return self._task.with_suffix(".answer").read_bytes()

    def end(self) -> None:
        if not self._future.done():
            # `shutdown(kill_workers=True)` fails just after a `submit`.
            for process in list(self._executor._processes):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        self._executor.shutdown()

    def _printed(self) -> str:
        printed = self._log.read_bytes() if self._log.exists() else b""
        text = printed[-_SHOWN:].decode(errors="replace").strip()
        return f"It printed last:\n{text}" if text else ""


@functools.cache
def _in_worker(work: Path) -> InWorker:
    return InWorker(work.read_bytes())


def _do(task: Path, starts: bool, name: str) -> None:
    """Does the task in a file, in a worker."""
    worker = _in_worker(task.with_name("work"))
    answer = worker.do(None if starts else task.read_bytes(), name)
    task.with_suffix(".answer").write_bytes(answer)


def gpu_of(number: int) -> dict[str, str]:
    """Variables that give a worker one of the GPUs, if there are several."""
    from keras_dml.utils.tensorflow import tf

    count = len(tf.config.list_physical_devices("GPU"))
    if count < 2:
        return {}
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = chosen.split(",")[:count] if chosen else range(count)
    return {"CUDA_VISIBLE_DEVICES": str(gpus[number % len(gpus)])}
