"""Begins a worker of `LocalWorkers`, as a script; see `local`.

It is run without the package around it, whose import takes seconds and prints.
"""

import os
import signal
import threading
import time

from joblib.externals.loky import process_executor


def main(parent: int, log: str) -> None:
    """Prepares a worker, which ends with its parent and prints into a log."""
    # Ctrl-C reaches every process of a terminal; the pool decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()
    file = os.open(log, os.O_WRONLY | os.O_TRUNC | os.O_CREAT)
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
