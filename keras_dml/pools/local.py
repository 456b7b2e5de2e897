"""A pool of processes on this machine."""

import contextlib
import os
import re
import runpy
import signal
import tempfile
import threading
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

from keras_dml.pools import local_worker
from keras_dml.pools.sharing import gpu_of, sharing
from keras_dml.pools.worker import do_local
from keras_dml.pools.worker_pool import Begin, Lost, WorkerHandle, WorkerPool
from keras_dml.utils.provenance import usable_cores
from keras_dml.utils.types import Count

_SHOWN = 2000
"""Bytes of a log that an error shows."""


class LocalWorkers(WorkerPool):
    """Runs tasks in processes on this machine.

    Processes are started when there are tasks for them, share the cores, and
    end with this process, however it ends. If one dies, it is replaced, and
    its task is repeated up to three times.

    Workers import the modules needed to unpickle the work from the same places
    as this process; they do not run its script again.

    Args:
        count: Number of processes.
        logs: A folder for the output of workers, with one file per worker, to
            which output is appended. By default, output is kept until the end
            of the run, and errors show its last lines.

    Raises:
        ValueError: If an argument is out of range.
        OSError: From `run`, if processes or files cannot be created.
    """

    def __init__(
        self,
        count: Count,
        logs: str | Path | None = None,
    ) -> None:
        self.count = int(count)
        self.logs = None if logs is None else Path(logs)

    def _open(
        self, work: bytes, undo: contextlib.ExitStack
    ) -> tuple[Begin, int]:
        name = undo.enter_context(tempfile.TemporaryDirectory())
        folder = Path(name)
        (folder / "work").write_bytes(work)
        logs = self.logs or folder
        logs.mkdir(parents=True, exist_ok=True)
        threads = sharing(max(1, usable_cores() // self.count))

        def begin(number: int) -> WorkerHandle:
            log = logs / f"worker-{number}.log"
            environment = threads | gpu_of(number)
            return _Process(folder, folder / f"{number}", log, environment)

        return begin, self.count


class _Process(WorkerHandle):
    """A worker: an executor with a single process.

    Tasks and answers are in files. If a process dies while a pipe to it is
    full, an executor waits forever.
    """

    def __init__(
        self, folder: Path, name: Path, log: Path, environment: dict[str, str]
    ) -> None:
        from joblib.externals.loky import ProcessPoolExecutor

        self._work = folder / "work"
        self._task = name.with_suffix(".task")
        self._answer = name.with_suffix(".answer")
        self._log = log
        self._log_begins = log.stat().st_size if log.exists() else 0
        in_main = threading.current_thread() is threading.main_thread()
        arguments = os.getpid(), in_main, str(log)
        self._executor = ProcessPoolExecutor(
            1,
            initializer=runpy.run_path,
            initargs=(local_worker.__file__, {"ARGUMENTS": arguments}, "begin"),
            env=environment,
        )

    def do(self, task: bytes, name: str) -> Future[Any]:
        self._task.write_bytes(task)
        files = self._work, self._task, self._answer
        try:
            future: Future[Any] = self._executor.submit(do_local, name, *files)
        except BrokenExecutor as error:  # It died while it had nothing to do.
            future = Future()
            future.set_exception(error)
        return future

    def answer(self, future: Future[Any]) -> bytes:
        try:
            future.result()
        except BrokenExecutor as error:
            raise Lost(self._how(str(error))) from error
        return self._answer.read_bytes()

    def end(self) -> None:
        self._executor.shutdown()

    def kill(self) -> None:
        # `shutdown(kill_workers=True)` fails just after a `submit`.
        for process in list(self._executor._processes):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._executor.shutdown()

    def _how(self, message: str) -> str:
        """How the process died, and what it printed last."""
        if status := re.search(r"{(.+)}", message):
            message = f"ended with {status[1]}"
        if "SIGKILL" in message:
            message += ", probably because memory ran out"
        printed = self._tail()
        return message + (f". It printed last:\n{printed}" if printed else ".")

    def _tail(self) -> str:
        if not self._log.exists():
            return ""
        with self._log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _SHOWN, self._log_begins))
            return file.read().decode(errors="replace").strip()
