"""Runs of a benchmark, each in a process of its own, some at a time."""

import contextlib
import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import IO, Any, Self

from keras_dml.pools.sharing import gpu_of, sharing
from keras_dml.recipes import dump
from keras_dml.resuming import TERMINATED
from keras_dml.runs.benchmark import worker
from keras_dml.runs.benchmark.plan import Run
from keras_dml.utils.provenance import usable_cores


class Workers:
    """Trains runs in fresh processes, so that none sees another's state.

    As a context, it passes SIGTERM on to the processes, which write their
    states before they end, and at its end it kills those still at work.

    Args:
        jobs: How many processes are at work at a time. If several, they share
            the cores: each has an equal part of them as its number of
            threads, unless the environment already sets one. Of several GPUs,
            each has one.
    """

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = jobs
        self._at_work: list[_Process] = []
        self._terminated = False
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGTERM, self._pass_on)
            self._exit.callback(signal.signal, signal.SIGTERM, before)
        return self

    def __exit__(self, *error: object) -> None:
        with self._exit:
            for process in self._at_work:
                process.kill()

    @property
    def runs(self) -> list[Run]:
        """The runs at work."""
        return [process.run for process in self._at_work]

    def start(self, run: Run) -> None:
        """Starts a run. What it prints goes into its log.

        Raises:
            SystemExit: After SIGTERM that came while none was at work.
        """
        if self._terminated and not self._at_work:
            raise SystemExit(TERMINATED)
        number = self._free_number()
        order = {
            "recipe": dump(run.recipe),
            "folder": str(run.folder),
            "save_every": run.save_every,
        }
        self._at_work.append(
            _Process(run, number, self._environment(number), order)
        )

    def try_out(self, runs: Sequence[Run]) -> str | None:
        """Builds the model of each run in one process, before any begins.

        What it prints goes into the log of the first.

        Returns:
            Why runs would fail, a line for each; None if none would.

        Raises:
            SystemExit: After SIGTERM.
        """
        order = {"recipes": [dump(run.recipe) for run in runs]}
        self._at_work.append(_Process(runs[0], 0, dict(os.environ), order))
        return self.first_ended()[1]

    def first_ended(self) -> tuple[Run, str | None]:
        """Waits for the first of the runs at work that ends.

        Returns:
            The run, and why it failed; None if it did not.

        Raises:
            SystemExit: After SIGTERM, once all runs have ended.
        """
        ended = _first_to_answer(self._at_work)
        error = ended.end()
        self._at_work.remove(ended)
        if self._terminated or ended.was_terminated:
            self._pass_on()
            for process in self._at_work:
                process.end()
            raise SystemExit(TERMINATED)
        return ended.run, error

    def _pass_on(self, *_: int | FrameType | None) -> None:
        self._terminated = True
        for process in self._at_work:
            process.terminate()

    def _free_number(self) -> int:
        taken = {process.number for process in self._at_work}
        return next(x for x in itertools.count() if x not in taken)

    def _environment(self, number: int) -> dict[str, str]:
        if self.jobs == 1:
            return dict(os.environ)
        threads = max(1, usable_cores() // self.jobs)
        return os.environ | sharing(threads) | gpu_of(number)


class _Process:
    """The process of a run.

    It gets its order in the first line of its standard input, ends when that
    is closed, which it is if this process is killed, and answers on its
    standard output. Those at work have different numbers.
    """

    def __init__(
        self,
        run: Run,
        number: int,
        environment: dict[str, str],
        order: dict[str, Any],
    ) -> None:
        self.run = run
        self.number = number
        run.log.parent.mkdir(parents=True, exist_ok=True)
        # As a script without the package around it, whose import takes
        # seconds in which nothing would end the process with this one.
        command = [sys.executable, "-P", worker.__file__]
        with run.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        self._send(order)

    @property
    def answer(self) -> IO[bytes]:
        """Where it answers; to be read once it ended or said all."""
        return _pipe(self._process.stdout)

    @property
    def was_terminated(self) -> bool:
        """Whether it ended because of SIGTERM."""
        return self._process.returncode == TERMINATED

    def end(self) -> str | None:
        """Waits for its end; says why it failed, None if it did not."""
        answer = self.answer.read()
        self._close()
        return _failure(answer, self._process.returncode, self.run)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self._close()

    def _send(self, order: dict[str, Any]) -> None:
        stdin = _pipe(self._process.stdin)
        with _unless_dead():
            stdin.write(json.dumps(order).encode() + b"\n")
            stdin.flush()

    def _close(self) -> None:
        with _unless_dead(), self._process:
            pass


def _first_to_answer(processes: list[_Process]) -> _Process:
    with selectors.DefaultSelector() as selector:
        for process in processes:
            selector.register(process.answer, selectors.EVENT_READ, process)
        key, _ = selector.select()[0]
    first: _Process = key.data
    return first


def _unless_dead() -> contextlib.AbstractContextManager[None]:
    """For what writes to a process; its status and log say why it died."""
    return contextlib.suppress(BrokenPipeError)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("The process of a run has no pipes.")
    return pipe


def _failure(answer: bytes, status: int, run: Run) -> str | None:
    if answer:
        error: str | None = json.loads(answer)["error"]
        return error
    if status < 0:
        name = signal.Signals(-status).name
        reason = f"was killed by {name}"
        if name == "SIGKILL":
            reason += ", probably because memory ran out"
    else:
        reason = f"ended with status {status} and no result"
    return f"The process {reason}; see {run.log}."
