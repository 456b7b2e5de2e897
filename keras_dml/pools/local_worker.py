"""Begins a worker of `LocalWorkers`, as a script; see `local`.

It is run without the package around it, whose import takes seconds and prints.
"""

import ctypes
import os
import signal
import sys
import threading
import time

from joblib.externals.loky import process_executor

_PR_SET_PDEATHSIG = 1


def main(parent: int, dies_with_thread: bool, log: str) -> None:
    """Prepares this process.

    Args:
        parent: The process of the pool, with which this one ends.
        dies_with_thread: Whether to end when the thread that started this
            process ends, and not only with its process.
        log: The file to which output is appended.
    """
    # Ctrl-C reaches every process of a terminal; the pool decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()
    if dies_with_thread and sys.platform == "linux":
        # Also while it is stopped, or held up outside of Python.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    # Loky would end a worker whose memory has grown, and with it the work that
    # it has started.
    process_executor._USE_PSUTIL = False


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "begin":
    main(*globals()["ARGUMENTS"])
