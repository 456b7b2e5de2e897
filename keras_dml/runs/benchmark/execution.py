"""One run of a benchmark, in a process of its own."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from keras_dml.recipes import dump
from keras_dml.runs.benchmark import worker
from keras_dml.runs.benchmark.plan import Run


def execute(run: Run) -> str | None:
    """Trains a run in a fresh process, so that none sees another's state.

    The process gets the recipe in the first line of its standard input,
    ends when that is closed, which it is if this process is killed, and
    answers on its standard output. All that it prints is in the log.

    Returns:
        Why the run failed; None if it did not.
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
            answer = _ask(process, run)
            return _failure(answer, process.wait(), run.log)
        finally:
            # After Ctrl-C; where the run has ended, nothing is left to end.
            process.kill()
            process.wait()


def _ask(process: "subprocess.Popen[bytes]", run: Run) -> bytes:
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise RuntimeError("The process of a run has no pipes.")
    order = {"recipe": dump(run.recipe), "folder": str(run.folder)}
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
            reason += ", as a system does that runs out of memory"
    else:
        reason = f"ended with status {status} and no result"
    return f"The process {reason}; see {log}."
