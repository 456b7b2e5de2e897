"""Reception: what clients are told until the model is loaded.

TensorFlow takes seconds to import, and Python much of that time, so a process
of its own answers. It runs this file alone, which imports nothing of the
package, and ends with its standard input: when the server is ready, or dead.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

LOADING = {"status": "loading"}
"""The answer of `/healthz`, as a probe of readiness has it: with status 503."""

BUSY = {"error": "The server is busy: it is loading its model. Try again."}

_MOST = 2**25
"""Bytes of a body that are read, without which clients see no answer."""

_PATIENCE = 1.0
"""Seconds that answers in progress have when the server is ready."""


class Reception:
    """A socket, and a process that answers there until it is ended.

    Args:
        opened: The socket, which is closed with the block.
    """

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        number = opened.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, str(number)],
            stdin=subprocess.PIPE,
            pass_fds=[number],
        )

    def end(self) -> None:
        """Leaves the socket to the server; a second time, does nothing."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.end()
        self.socket.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5

    def do_GET(self) -> None:
        length = self.headers.get("content-length", "")
        if length.isdigit():
            self.rfile.read(min(int(length), _MOST))
        is_health = self.path == "/healthz"
        body = json.dumps(LOADING if is_health else BUSY).encode()
        self.send_response(503)
        for name, value in (
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("retry-after", "1"),
            ("connection", "close"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        """Nothing: the log has lines of JSON, of what the server answers."""


class _Server(ThreadingHTTPServer):
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        """Nothing: the client went away."""


def _answer(number: int) -> None:
    # Ctrl-C reaches all processes; the server says when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _Server(("", 0), _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = socket.socket(fileno=number)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    sys.stdin.buffer.read()
    server.shutdown()
    last = time.monotonic() + _PATIENCE
    for answering in threading.enumerate():
        if answering is not threading.current_thread():
            answering.join(max(0, last - time.monotonic()))
    os._exit(0)  # Who has not sent a whole request is not waited for.


if __name__ == "__main__":
    _answer(int(sys.argv[1]))
