"""One run of a benchmark, in a process of its own."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from keras_dml.recipes import dump
from keras_dml.resuming import TERMINATED
from keras_dml.runs.benchmark import worker
from keras_dml.runs.benchmark.plan import Run


def execute(run: Run) -> str | None:
    """Trains a run in a fresh process, so that none sees another's state.

    The process gets the recipe in the first line of its standard input,
    ends when that is closed, which it is if this process is killed, and
    answers on its standard output. All that it prints is in the log.

    SIGTERM is passed on to it, and its state is written before it ends.

    Returns:
        Why the run failed; None if it did not.

    Raises:
        SystemExit: After SIGTERM.
    """
    run.log.parent.mkdir(parents=True, exist_ok=True)
    # As a script without the package around it, whose import takes seconds
    # in which nothing would end the process with this one.
    command = [sys.executable, "-P", worker.__file__]
    with (
        run.log.open("wb") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):
        try:
            with _sigterm_passed_on(process) as terminated:
                answer = _ask(process, run)
                status = process.wait()
            if terminated or status == TERMINATED:
                raise SystemExit(TERMINATED)
            return _failure(answer, status, run.log)
        finally:
            # After Ctrl-C; where the run has ended, nothing is left to end.
            process.kill()
            process.wait()


@contextlib.contextmanager
def _sigterm_passed_on(
    process: "subprocess.Popen[bytes]",
) -> Iterator[list[int]]:
    """Passes SIGTERM on to a process; what came is in the list."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def pass_on(number: int, _: object) -> None:
        came.append(number)
        process.terminate()

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


def _ask(process: "subprocess.Popen[bytes]", run: Run) -> bytes:
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise RuntimeError("The process of a run has no pipes.")
    order = {
        "recipe": dump(run.recipe),
        "folder": str(run.folder),
        "save_every": run.save_every,
    }
    try:
        with stdin, stdout:
            stdin.write(json.dumps(order).encode() + b"\n")
            stdin.flush()
            return stdout.read()
    except BrokenPipeError:
        return b""  # It died; its exit status and log say of what.


def _failure(answer: bytes, status: int, log: Path) -> str | None:
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
    return f"The process {reason}; see {log}."
