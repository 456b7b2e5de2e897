"""A worker of `LocalWorkers`, a script; see `local`."""

import ctypes
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection

_PR_SET_PDEATHSIG = 1


def main(connection: int, dies_with_thread: bool) -> None:
    """Does tasks until there are no more.

    Args:
        connection: The file descriptor of the pipe to the pool.
        dies_with_thread: Whether to end when the thread that started this
            process ends, and not only with its process.
    """
    # Ctrl-C reaches every process of a terminal; the pool decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if dies_with_thread and sys.platform == "linux":
        # Also while it is stopped, or held up outside of Python.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.set_inheritable(connection, False)
    pipe = Connection(connection)
    sys.path[:] = pipe.recv()
    order = pipe.recv_bytes()

    # The import takes seconds, in which all of the above already holds.
    from keras_dml.pools.serving import Server

    server = Server(order)
    pipe.send_bytes(server.start())
    try:
        while True:
            pipe.send_bytes(server.do(pipe.recv_bytes()))
    except EOFError:  # All is done.
        pass


def _end_with_parent() -> None:
    # Not through `sys.stdin`, whose lock would disturb the way out.
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "1")
