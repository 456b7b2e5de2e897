"""Processes that tests of pools watch and end."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil

WORKER = "loky.backend.popen_loky"
"""What the commands of local workers contain."""


def workers_of(process: int) -> list[psutil.Process]:
    """The local workers of a process that live."""
    return [
        x
        for x in psutil.Process(process).children()
        if x.is_running()
        and x.status() != psutil.STATUS_ZOMBIE
        and WORKER in " ".join(x.cmdline())
    ]


def wait_for(what: Callable[[], object], seconds: float = 60) -> None:
    """Waits until something is so; fails if it takes too long."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@contextlib.contextmanager
def driver(code: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that runs some code, in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        with process:
            yield process
            process.wait(60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
