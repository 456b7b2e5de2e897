"""`keras-dml serve` as a process: addresses, signals, loads, bad luck."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.export.serving import file_of
from tests.serve.conftest import write
from tests.serve.test_reloading import add
from tests.serve.test_rest import b64

pytestmark = pytest.mark.slow

CODE = (
    "import sys; sys.argv[0] = 'keras-dml'; from keras_dml.cli import main; "
    "main()"
)
"""As the command starts, which then keeps TensorFlow quiet."""

COMMAND = (sys.executable, "-c", CODE)


class Server:
    """A server, its address and what it said."""

    def __init__(self, *arguments: Any) -> None:
        command = [*COMMAND, "serve", *map(str, arguments)]
        # What the command sets it to by default.
        environment = dict(os.environ)
        environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self.process.stdout is not None
        self.addresses = [self.process.stdout.readline() for _ in range(2)]
        if not all(self.addresses):
            self.process.wait(60)
            self.close()
            raise RuntimeError("".join(self.said))
        self.name = self.addresses[0].strip().rpartition("/")[2]
        self.port = int(self.addresses[1].rpartition(":")[2].strip(" /\n"))

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)

    def ask(self, address: str, body: Any = None) -> tuple[int, Any]:
        with contextlib.closing(self.connect()) as connection:
            return ask(connection, address, body)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def predict(self, *instances: Any, **more: Any) -> tuple[int, Any]:
        address = f"/v1/models/{self.name}:predict"
        return self.ask(address, {"instances": instances, **more})

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self._reader.join(10)
        return code


def ask(
    connection: http.client.HTTPConnection, address: str, body: Any = None
) -> tuple[int, Any]:
    content = None if body is None else json.dumps(body)
    connection.request("GET" if body is None else "POST", address, content)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@contextlib.contextmanager
def serving(*arguments: Any) -> Iterator[Server]:
    server = Server(*arguments, "--port", "0")
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def adder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "adder"
    add(1, folder / "1")
    return folder


def test_two_servers_on_one_gallery_which_is_then_deleted(
    tmp_path, pixels
) -> None:
    file, place = write(tmp_path)
    query = b64(file_of(pixels[0]))
    with serving(file, "--gallery", place) as first:
        assert first.addresses == [
            f"REST: http://127.0.0.1:{first.port}/v1/models/glyphs\n",
            f"Page: http://127.0.0.1:{first.port}/\n",
        ]
        with serving(file, "--gallery", place) as second:
            answers = [
                x.predict(query, signature_name="lookup")
                for x in (first, second)
            ]
            assert answers[0] == answers[1]
            assert answers[0][0] == 200
            shutil.rmtree(place)
            for server in (first, second):
                until = time.monotonic() + 30
                while not server.ask("/healthz")[1]["problem"]:
                    assert time.monotonic() < until
                    time.sleep(0.1)
                again = server.predict(query, signature_name="lookup")
                assert again == answers[0]
            assert second.stop() == 0
        assert first.stop() == 0
    lines = logged(first)
    said = [x["message"] for x in lines if x["level"] == "warning"]
    assert any("gallery" in x and "no longer exists" in x for x in said)
    assert {"/healthz", "/v1/models/glyphs:predict"} == {
        x["path"] for x in lines if x["message"] == "request"
    }


def logged(server: Server) -> list[dict[str, Any]]:
    """All lines of a server on stderr; each must be JSON."""
    lines = [json.loads(x) for x in server.said]
    assert all({"time", "level", "message"} <= x.keys() for x in lines)
    return lines


def test_what_runs_is_finished_when_it_stops(adder) -> None:
    with serving(adder) as server:
        connections = [server.connect() for _ in range(20)]
        rows = json.dumps({"instances": list(range(100_000))})
        for connection in connections:
            connection.request("POST", "/v1/models/adder:predict", rows)
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        codes: Counter[int] = Counter()
        for connection in connections:
            answer = connection.getresponse()
            answer.read()
            codes[answer.status] += 1
            connection.close()
        assert codes.keys() <= {200, 503}
        assert codes[200] > 0
        assert server.process.wait(60) == 0
        with pytest.raises(OSError):
            server.ask("/healthz")


def test_what_takes_too_long_when_it_stops_is_refused(adder) -> None:
    with serving(adder, "--stop-timeout", "1") as server:
        with socket.create_connection(("127.0.0.1", server.port)) as opened:
            opened.sendall(
                b"POST /v1/models/adder:predict HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Length: 9\r\n\r\n"
            )
            time.sleep(0.3)
            began = time.monotonic()
            assert server.stop() == 0
            assert 1 <= time.monotonic() - began < 20
            assert opened.recv(2**16).startswith(b"HTTP/1.1 503 ")
    logged(server)


def test_a_new_version_drops_no_request(adder, tmp_path) -> None:
    model = tmp_path / "adder"
    shutil.copytree(adder, model)
    found: list[Any] = []
    with serving(model) as server:
        stop = threading.Event()

        def client() -> None:
            with contextlib.closing(server.connect()) as connection:
                while not stop.is_set():
                    body = {"instances": [1.0]}
                    address = "/v1/models/adder:predict"
                    code, answer = ask(connection, address, body)
                    found.append((code, *answer["predictions"]))

        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        add(2, tmp_path / "new")
        (tmp_path / "new").rename(model / "2")
        until = time.monotonic() + 60
        while (200, 3.0) not in found and time.monotonic() < until:
            time.sleep(0.1)
        stop.set()
        for thread in threads:
            thread.join()
        server.stop()
    assert set(found) == {(200, 2.0), (200, 3.0)}
    assert "Serving version 2 of adder." in {
        x["message"] for x in logged(server)
    }


def test_a_version_that_fails_is_logged_as_json(adder, tmp_path) -> None:
    model = tmp_path / "adder"
    shutil.copytree(adder, model)
    with serving(model) as server:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "saved_model.pb").write_text("nothing")
        (tmp_path / "new").rename(model / "2")
        until = time.monotonic() + 60
        while not server.ask("/healthz")[1]["problem"]:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert server.stop() == 0
    [line] = [x for x in logged(server) if x["level"] == "error"]
    assert "The new version cannot be loaded" in line["message"]
    assert line["exception"].startswith("Traceback")


def test_a_thousand_requests_at_once_are_answered(adder) -> None:
    with serving(adder, "--queue", "20") as server:
        address = "/v1/models/adder:predict"

        def client(i: int) -> list[int]:
            with contextlib.closing(server.connect()) as connection:
                rows = {"instances": [float(i)] * 15}
                return [ask(connection, address, rows)[0] for _ in range(10)]

        with ThreadPoolExecutor(100) as pool:
            codes = Counter(x for y in pool.map(client, range(100)) for x in y)
        assert codes.keys() <= {200, 503}
        assert codes[200] > 0
        assert sum(codes.values()) == 1000
        assert server.predict(1.0) == (200, {"predictions": [2.0]})


def test_a_gigabyte_is_refused_at_once(adder) -> None:
    with serving(adder) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as opened:
            opened.sendall(
                b"POST /v1/models/adder:predict HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Length: 1073741824\r\n\r\n"
            )
            opened.settimeout(30)
            answer = b""
            while part := opened.recv(2**16):
                answer += part
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert server.predict(1.0)[0] == 200


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nothing"], "There is nothing at 'nothing'"),
        (["--host", "no.such.host.invalid"], "which is unknown"),
        (["--gallery", "nothing"], "There is no index in"),
    ],
)
def test_errors_at_the_start_name_what_is_wrong(adder, arguments, error):
    path = [] if arguments[0] == "nothing" else [adder]
    with pytest.raises(RuntimeError) as raised:
        Server(*path, *arguments, "--port", "0")
    assert error in str(raised.value)
    assert "Traceback" not in str(raised.value)


def test_a_port_in_use_is_said_before_anything_is_loaded(adder) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"Port {port} .* is in use"):
            Server(adder, "--port", port)


def test_other_machines_without_a_token_are_warned_of(adder) -> None:
    with serving(adder, "--host", "0.0.0.0") as server:  # noqa: S104
        assert server.ask("/healthz")[0] == 200
        assert server.stop() == 0
    [line] = [x for x in logged(server) if x["level"] == "warning"]
    assert "because it has no --token" in line["message"]


def test_the_token_can_be_in_the_environment(adder, monkeypatch) -> None:
    monkeypatch.setitem(os.environ, "KERAS_DML_SERVE_TOKEN", "secret")
    with serving(adder) as server:
        assert server.predict(1.0)[0] == 401
        assert server.ask("/healthz")[0] == 200
