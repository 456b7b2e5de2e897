"""A pool of processes on this machine."""

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import IO

from keras_dml.pools import worker
from keras_dml.pools.schedule import Crew, CrewPool, Lost
from keras_dml.pools.sharing import gpu_of, sharing
from keras_dml.utils.arguments import check_count
from keras_dml.utils.provenance import usable_cores

GOODBYE = 10.0
"""Seconds that workers have to end by themselves."""

_SHOWN = 2000
"""Bytes of a log that an error shows."""

_TICK = 1.0

_Answers = queue.SimpleQueue["tuple[_Process, bytes | Lost]"]


class LocalWorkers(CrewPool):
    """Runs tasks in processes on this machine.

    Processes are started when there are tasks for them, share the cores, and
    end with this process, however it ends. If one dies or hangs, it is
    replaced, and its task is repeated up to three times.

    Workers import the modules needed to unpickle the work from the same places
    as this process; they do not run its script again.

    Args:
        count: Number of processes.
        timeout: Seconds that a task may take before its worker is considered
            hung. By default, 20 times the median of the last hundred tasks, and
            at least ten minutes.
        logs: A folder for the output of workers, with one file per worker, to
            which output is appended. By default, output is kept until the
            worker ends, and errors show its last lines.

    Raises:
        ValueError: If an argument is out of range.
        OSError: From `run`, if processes or logs cannot be created.
    """

    def __init__(
        self,
        count: int,
        timeout: float | None = None,
        logs: str | Path | None = None,
    ) -> None:
        super().__init__(timeout)
        self.count = check_count("LocalWorkers", "count", count)
        self.logs = None if logs is None else Path(logs)

    def _crew(self, order: bytes) -> tuple[Crew, int]:
        if self.logs is not None:
            self.logs.mkdir(parents=True, exist_ok=True)
        return _Processes(order, self.count, self.logs), self.count


class _Processes(Crew):
    def __init__(self, order: bytes, count: int, logs: Path | None) -> None:
        self._order = order
        self._threads = max(1, usable_cores() // count)
        self._logs = logs
        self._answers = _Answers()
        self._all: set[_Process] = set()

    def start(self, number: int) -> "_Process":
        log = (
            tempfile.TemporaryFile()
            if self._logs is None
            else (self._logs / f"worker-{number}.log").open("ab+")
        )
        environment = os.environ | sharing(self._threads) | gpu_of(number)
        process = _Process(self._order, environment, log, self._answers)
        self._all.add(process)
        return process

    def give(self, worker: "_Process", task: bytes) -> None:
        worker.tasks.put(task)

    def kill(self, worker: "_Process") -> None:
        self._all.discard(worker)
        worker.close()

    def answer(self, timeout: float) -> "tuple[_Process, bytes | Lost] | None":
        try:
            worker, answer = self._answers.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(answer, Lost):
            self.kill(worker)  # What is left of it.
        return worker, answer

    def end(self) -> None:
        for process in self._all:
            process.tasks.put(None)
        deadline = time.monotonic() + GOODBYE
        for process in self._all:
            process.wait(deadline - time.monotonic())

    def close(self) -> None:
        for process in self._all:
            process.close()


class _Process:
    """A process, and the thread that talks to it.

    The pool itself must not wait in a pipe: what is read or written there
    may be large, and the other side may hang.
    """

    def __init__(
        self,
        order: bytes,
        environment: Mapping[str, str],
        log: IO[bytes],
        answers: _Answers,
    ) -> None:
        self.tasks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._order = order
        self._log = log
        self._log_begins = log.seek(0, os.SEEK_END)
        self._answers = answers
        self._pipe, theirs = Pipe()
        in_main = threading.current_thread() is threading.main_thread()
        with theirs:
            # As a script without the package around it, whose import takes
            # seconds in which nothing would end it with this process. Its
            # standard input is open for as long as this process lives.
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", worker.__file__),
                    *(str(theirs.fileno()), str(int(in_main))),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                env=environment,
            )
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self._thread.start()

    def _talk(self) -> None:
        try:
            self._pipe.send(sys.path)
            self._pipe.send_bytes(self._order)
            self._answers.put((self, self._received()))
            while (task := self.tasks.get()) is not None:
                self._pipe.send_bytes(task)
                self._answers.put((self, self._received()))
        except (EOFError, OSError):
            # It is about to end, or of no use: nothing reaches it any more.
            self.wait(GOODBYE)
            self._process.kill()
            self._answers.put((self, Lost(self._how())))
        finally:
            self._pipe.close()

    def _received(self) -> bytes:
        # What the worker has started may hold the pipe open after its end.
        while not self._pipe.poll(_TICK):
            if self._process.poll() is not None and not self._pipe.poll():
                raise EOFError
        return self._pipe.recv_bytes()

    def _how(self) -> str:
        """How the process ended, and what it said last."""
        status = self._process.wait()
        how = f"ended with status {status}"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        if status == -signal.SIGKILL:
            how += ", probably because memory ran out"
        printed = self._tail()
        return how + (f". It printed last:\n{printed}" if printed else ".")

    def _tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(size - _SHOWN, self._log_begins))
        return self._log.read().decode(errors="replace").strip()

    def wait(self, timeout: float) -> None:
        """Waits until the process has ended by itself, up to a time."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass

    def close(self) -> None:
        """Kills the process if it lives, and frees what it had."""
        self._process.kill()
        self._process.wait()
        self.tasks.put(None)
        self._thread.join(GOODBYE)
        if self._process.stdin:
            self._process.stdin.close()
        self._log.close()
