"""A listening server: limits, start and stop."""

import contextlib
import http.client
import json
import socket
import time
from typing import Any

import pytest

from keras_dml.serve.settings import Settings, bind
from tests.serve.conftest import serving

MODEL = "/v1/models/glyphs"
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LATE = 30
"""Seconds after which what should come will not."""


def connected(port: int, data: bytes = b"") -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port), LATE)
    opened.sendall(data)
    return opened


def wait_for_connections(server: Any, count: int) -> None:
    end = time.monotonic() + LATE
    while len(server.server_state.connections) != count:
        assert time.monotonic() < end
        time.sleep(0.01)


def ask(port: int, path: str, data: Any = None, **headers: str) -> Any:
    """The status, the headers and the body of an answer."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(client):
        client.request("GET" if data is None else "POST", path, data, headers)
        answer = client.getresponse()
        return answer.status, answer.headers, answer.read()


def test_answers_are_sent_at_once() -> None:
    with contextlib.closing(bind(Settings(port=0))) as opened:
        opened.listen()
        address = opened.getsockname()
        with socket.create_connection(address), opened.accept()[0] as accepted:
            delay = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(*delay)


def test_requests_on_too_many_connections_are_answered_503() -> None:
    with serving(max_connections=2) as live:
        server, port = live.server, live.port
        with connected(port), connected(port) as second:
            wait_for_connections(server, 2)
            assert ask(port, MODEL)[0] == 503
            wait_for_connections(server, 2)
            second.sendall(WHOLE)
            assert second.recv(2**16).startswith(b"HTTP/1.1 200 ")
        wait_for_connections(server, 0)
        assert ask(port, MODEL)[0] == 200


@pytest.mark.parametrize("in_chunks", [False, True])
def test_body_above_the_limit_is_answered_413(in_chunks) -> None:
    size = 40 * 2**20
    data: Any = bytes(size)
    path = f"{MODEL}:predict"
    with serving(max_body=size // 6) as live:
        chunks = (data[i : i + 2**20] for i in range(0, size, 2**20))
        code, _, body = ask(live.port, path, chunks if in_chunks else data)
        error = json.loads(body)["error"]
        assert (code, f"exceed {size // 6:,} bytes" in error) == (413, True)
        wait_for_connections(live.server, 0)
    with serving(token="secret") as live:  # noqa: S106
        assert ask(live.port, path, data)[0] == 401


def test_unfinished_requests_are_answered_503_when_the_server_stops(
    caplog,
) -> None:
    head = (
        f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Length: 9\r\n\r\n"
    )
    with serving(stop_timeout=0.5) as live:
        with connected(live.port, head.encode()) as opened:
            while not live.server.server_state.tasks:
                time.sleep(0.01)
            live.server.should_exit = True
            received = b""
            while part := opened.recv(2**16):
                received += part
    assert received.startswith(b"HTTP/1.1 503 ")
    assert b"it is stopping" in received
    assert "Traceback" not in caplog.text
