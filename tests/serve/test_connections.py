"""Connections of clients that send little, or nothing, or read nothing."""

import asyncio
import contextlib
import http.client
import itertools
import json
import logging
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from keras_dml.serve.app import application
from keras_dml.serve.current import Current
from keras_dml.serve.server import Server, loading
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings
from keras_dml.serve.sockets import listen

CURRENT = Current("glyphs", 7, None, None, None, {})
MODEL = "/v1/models/glyphs"
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = WHOLE[:-10]
SOON, LATE = 0.3, 30
"""Seconds: a time limit of a test, and when what should come will not."""


class InThread(Server):
    """A server that leaves signals to the main thread."""

    port: int

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def serving(app: Any = None, **given: Any) -> Iterator[InThread]:
    settings = Settings(port=0, **{"head_timeout": SOON, **given})
    app = app or application(Service(CURRENT, settings), settings)
    ready = threading.Event()
    server = InThread(app, settings, ready.set)
    with contextlib.closing(listen(settings)) as opened:
        server.port = opened.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([opened],))
        thread.start()
        try:
            assert ready.wait(LATE)
            yield server
        finally:
            server.should_exit = True
            thread.join(LATE)


@pytest.fixture(scope="module")
def server() -> Iterator[InThread]:
    with serving() as started:
        yield started


@contextlib.contextmanager
def connected(server: InThread, data: bytes = b"") -> Iterator[socket.socket]:
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address, LATE) as opened:
        opened.sendall(data)
        yield opened


def until_closed(opened: socket.socket) -> bytes:
    parts = []
    while part := opened.recv(2**16):
        parts.append(part)
    return b"".join(parts)


def answers(received: bytes) -> list[tuple[int, Any]]:
    """Codes and bodies, of answers that have a length."""
    found = []
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        first, *lines = head.lower().split(b"\r\n")
        headers = dict(x.split(b": ", 1) for x in lines)
        assert headers[b"content-type"] == b"application/json"
        length = int(headers[b"content-length"])
        body, received = received[:length], received[length:]
        found.append((int(first.split()[1]), json.loads(body)))
    return found


def seconds_since(began: float) -> float:
    return time.monotonic() - began


def wait_for_connections(server: InThread, count: int) -> None:
    end = time.monotonic() + LATE
    while len(server.server_state.connections) != count:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("data", [b"", b"\r\n\r\n"])
def test_a_silent_connection_is_closed_without_an_answer(server, data) -> None:
    began = time.monotonic()
    with connected(server, data) as opened:
        assert until_closed(opened) == b""
    assert SOON - 0.01 < seconds_since(began) < LATE


@pytest.mark.parametrize("data", [b"G", HALF, WHOLE[:-1]])
def test_part_of_a_head_is_answered_408(server, data) -> None:
    began = time.monotonic()
    with connected(server, data) as opened:
        [(code, body)] = answers(until_closed(opened))
    assert code == 408
    assert "complete within 0.3 seconds" in body["error"]
    assert SOON - 0.01 < seconds_since(began) < LATE


def dribble(opened: socket.socket) -> bytes:
    """Sends a head that never ends, slowly, until there is an answer."""
    for byte in itertools.chain(HALF, itertools.repeat(b"x"[0])):
        opened.sendall(bytes([byte]))
        if select.select([opened], [], [], SOON / 10)[0]:
            return until_closed(opened)
    raise AssertionError


def test_a_head_byte_by_byte_gets_no_more_time(server) -> None:
    began = time.monotonic()
    with connected(server) as opened:
        assert [x[0] for x in answers(dribble(opened))] == [408]
    assert SOON - 0.01 < seconds_since(began) < LATE


def test_nor_does_one_after_an_answer(server) -> None:
    with connected(server, WHOLE) as opened:
        assert opened.recv(2**16).startswith(b"HTTP/1.1 200 ")
        began = time.monotonic()
        assert [x[0] for x in answers(dribble(opened))] == [408]
    assert SOON - 0.05 < seconds_since(began) < LATE


def test_a_slow_head_in_time_is_answered() -> None:
    with serving(head_timeout=LATE) as server, connected(server) as opened:
        for byte in WHOLE:
            opened.sendall(bytes([byte]))
            time.sleep(0.001)
        assert opened.recv(2**16).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (WHOLE, [200]),
        (WHOLE + HALF, [200]),
        (WHOLE + b"\r\n", [200]),
        (WHOLE * 3, [200] * 3),
    ],
    ids=["idle", "half", "line", "pipelined"],
)
def test_the_time_begins_again_after_an_answer(data, codes) -> None:
    with serving(head_timeout=0.6) as server, connected(server) as opened:
        time.sleep(0.3)
        began = time.monotonic()
        opened.sendall(data)
        found = [code for code, _ in answers(until_closed(opened))]
        assert found == codes + [408] * data.endswith(HALF)
        assert 0.59 < seconds_since(began) < LATE


def test_clients_that_keep_a_connection_are_not_affected() -> None:
    with serving(head_timeout=2) as server:
        client = http.client.HTTPConnection("127.0.0.1", server.port)
        with contextlib.closing(client):
            client.connect()
            opened = client.sock
            for _ in range(8):
                client.request("GET", MODEL)
                assert client.getresponse().read()
                time.sleep(0.3)  # In all longer than a head may take.
            assert client.sock is opened


def test_answers_and_bodies_may_take_longer_than_heads() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        while (await receive())["more_body"]:
            pass
        await asyncio.sleep(1)
        start = {"type": "http.response.start", "status": 200}
        headers = [(b"content-length", b"2")]
        await send({**start, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    head = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n"
    with serving(app, head_timeout=0.2) as server:
        with connected(server, head) as opened:
            time.sleep(0.5)
            # The next head begins during this answer, which is not cut off.
            opened.sendall(b"ab" + HALF)
            received = until_closed(opened)
        assert received.startswith(b"HTTP/1.1 200 ")
        first, _, second = received.partition(b"{}")
        assert [x[0] for x in answers(second)] == [408]


def test_an_endless_head_is_refused(server) -> None:
    with connected(server, b"GET / HTTP/1.1\r\n") as opened:
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 2**26:
                sent += opened.send(b"x-header: 123456\r\n" * 1000)
        assert sent < 2**26
    with connected(server, b"GET / HTTP/1.1\r\nx: ") as opened:
        time.sleep(0.05)
        opened.sendall(b"x" * 2**16 + b"y")
        [(code, body)] = answers(until_closed(opened))
        assert (code, "65,536 bytes" in body["error"]) == (431, True)


def test_what_is_no_http_is_answered_in_json(server) -> None:
    with connected(server, b"\x16\x03\x01\x02\x00 of TLS\r\n\r\n") as opened:
        [(code, body)] = answers(until_closed(opened))
    assert (code, "Invalid" in body["error"]) == (400, True)


@pytest.mark.parametrize(
    ("code", "data"),
    [(400, b"\x16\x03\x01 of TLS\r\n\r\n"), (408, HALF)],
)
def test_what_is_refused_is_counted_and_logged(caplog, code, data) -> None:
    caplog.set_level(logging.INFO, "keras_dml.serve.requests")
    with serving() as server:
        with connected(server, data) as opened:
            assert [x[0] for x in answers(until_closed(opened))] == [code]
        with connected(server, WHOLE.replace(b"healthz", b"metrics")) as opened:
            metrics = until_closed(opened).decode()
    line = f'keras_dml_requests_total{{code="{code}",route="unknown"}} 1.0'
    assert line in metrics
    [refused] = [x for x in caplog.records if x.message == "refused"]
    assert refused.fields == {"code": code, "client": "127.0.0.1"}


def test_who_reads_nothing_is_disconnected() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        size = 2**26
        start = {"type": "http.response.start", "status": 200}
        headers = [(b"content-length", b"%d" % size)]
        await send({**start, "headers": [*headers, (b"connection", b"close")]})
        await send({"type": "http.response.body", "body": bytes(size)})

    with serving(app, head_timeout=0.2) as server:
        with connected(server, WHOLE):
            wait_for_connections(server, 1)
            wait_for_connections(server, 0)
        with connected(server, WHOLE) as opened:
            read = 0
            while part := opened.recv(2**20):  # Slowly, but it does read.
                read += len(part)
                time.sleep(0.01)
            assert read > 2**26


def test_connections_beyond_the_limit_are_told_so() -> None:
    with serving(max_connections=2, head_timeout=LATE) as server:
        with connected(server) as one, connected(server) as two:
            wait_for_connections(server, 2)
            client = http.client.HTTPConnection("127.0.0.1", server.port)
            with contextlib.closing(client):
                client.request("GET", "/healthz")
                answer = client.getresponse()
                assert (answer.status, answer.read()[:1]) == (200, b"{")
                client.request("POST", f"{MODEL}:predict", b"{}")
                answer = client.getresponse()
                assert answer.status == 503
                assert answer.headers["retry-after"] == "1"
                assert answer.headers["connection"] == "close"
                said = json.loads(answer.read())["error"]
                assert "more than 2 connections are open" in said
            one.sendall(WHOLE)
            assert one.recv(2**16).startswith(b"HTTP/1.1 200 ")
            two.close()
        wait_for_connections(server, 0)
        with connected(server, WHOLE.replace(b"/healthz", MODEL.encode())) as x:
            assert x.recv(2**16).startswith(b"HTTP/1.1 200 ")


def test_far_too_many_connections_are_closed_at_once(monkeypatch) -> None:
    monkeypatch.setattr("keras_dml.serve.connections.SPARE", 1)
    with serving(max_connections=1, head_timeout=LATE) as server:
        with connected(server), connected(server), connected(server) as third:
            with contextlib.suppress(ConnectionError):
                assert third.recv(1) == b""


def test_what_does_not_finish_when_the_server_stops_is_told_so(caplog) -> None:
    head = f"POST {MODEL}:predict HTTP/1.1\r\nContent-Length: 9\r\n\r\n"
    with serving(stop_timeout=0.5) as server:
        with connected(server, head.encode()) as opened:
            while not server.server_state.tasks:
                time.sleep(0.01)
            began = time.monotonic()
            server.should_exit = True
            [(code, body)] = answers(until_closed(opened))
    assert 1 <= seconds_since(began) < LATE
    assert (code, "it is stopping" in body["error"]) == (503, True)
    assert "Traceback" not in caplog.text


def posted(server: InThread, data: Any, **headers: str) -> tuple[int, str]:
    """The answer to a body that is sent at once, whole or in chunks."""
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    with contextlib.closing(client):
        client.request("POST", f"{MODEL}:predict", data, headers)
        answer = client.getresponse()
        assert answer.headers["connection"] == "close"
        return answer.status, json.loads(answer.read())["error"]


@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_body_above_the_limit_sent_at_once_is_told_so(in_chunks) -> None:
    size = 40 * 2**20
    data: Any = bytes(size)
    with serving(max_body=size // 6, head_timeout=LATE) as server:
        chunks = (data[i : i + 2**20] for i in range(0, size, 2**20))
        code, error = posted(server, chunks if in_chunks else data)
        assert (code, f"exceed {size // 6:,} bytes" in error) == (413, True)
        wait_for_connections(server, 0)
    with serving(token="secret", head_timeout=LATE) as server:  # noqa: S106
        assert posted(server, data)[0] == 401


def test_what_is_refused_is_not_read_for_ever() -> None:
    head = f"POST {MODEL}:predict HTTP/1.1\r\nContent-Length: 999999\r\n\r\n"
    with serving(max_body=1000) as server:  # By bytes, and by time.
        for data in (bytes(2**16), b""):
            began = time.monotonic()
            with connected(server, head.encode() + data) as opened:
                [(code, _)] = answers(until_closed(opened))
            assert code == 413
            assert data or seconds_since(began) > SOON - 0.01
            assert seconds_since(began) < LATE


def test_while_a_model_is_loading_the_server_says_so() -> None:
    settings = Settings(port=0)
    app = application(Service(CURRENT, settings), settings)
    with contextlib.closing(listen(settings)) as opened:
        port = opened.getsockname()[1]

        def ask(path: str) -> tuple[int, Any, bytes]:
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=LATE)
            with contextlib.closing(client):
                client.request("GET", path)
                answer = client.getresponse()
                return answer.status, answer.headers, answer.read()

        with contextlib.suppress(OSError), loading(opened, settings):
            code, headers, body = ask("/healthz")
            told = {"status": "loading", "loading": "the model"}
            assert (code, json.loads(body)) == (503, told)
            assert headers["retry-after"] == "2"
            code, headers, body = ask(MODEL)
            assert (code, b"is loading its model" in body) == (503, True)
            code, headers, body = ask("/")
            assert (code, headers["refresh"]) == (503, "2")
            assert body.startswith(b"<!doctype html>")
            raise OSError  # As where the model cannot be read.
        server = InThread(app, settings, lambda: None)
        thread = threading.Thread(target=server.run, args=([opened],))
        thread.start()
        try:
            code, headers, body = ask("/healthz")
            assert (code, json.loads(body)["status"]) == (200, "ok")
        finally:
            server.should_exit = True
            thread.join(LATE)
