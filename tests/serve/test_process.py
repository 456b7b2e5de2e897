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
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from keras_dml.cli import main
from keras_dml.serve.server import serve
from keras_dml.serve.settings import Settings
from tests.serve.conftest import encode, picture
from tests.serve.test_rest import b64

pytestmark = pytest.mark.slow

CODE = (
    "import sys; sys.argv[0] = 'keras-dml'; from keras_dml.cli import main; "
    "main()"
)
"""Starts the program like the command, which quiets TensorFlow."""

COMMAND = (sys.executable, "-c", CODE)


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    """Waits until a condition holds; fails if it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


class Server:
    """A server process, its address and its output."""

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
        self.addresses = [self.process.stdout.readline() for _ in range(2)]
        if not all(self.addresses):
            self.process.wait(60)
            self.close()
            raise RuntimeError("".join(self.said))
        self.name = self.addresses[0].strip().rpartition("/")[2]
        self.port = int(self.addresses[1].rpartition(":")[2].strip(" /\n"))

    def _read(self) -> None:
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


PREDICT = "/v1/models/glyphs:predict"


def logged(server: Server) -> list[dict[str, Any]]:
    """All lines of a server on stderr; each must be JSON."""
    lines = [json.loads(x) for x in server.said]
    assert all({"time", "level", "message"} <= x.keys() for x in lines)
    return lines


def test_deleted_gallery_is_still_served(
    written, client, pixels, tmp_path
) -> None:
    file, place = written[0], tmp_path / "index"
    shutil.copytree(written[1], place)
    query = {"signature_name": "lookup", "instances": [b64(encode(pixels[0]))]}
    with serving(file, "--gallery", place) as server:
        assert server.addresses == [
            f"REST: http://127.0.0.1:{server.port}/v1/models/glyphs\n",
            f"Page: http://127.0.0.1:{server.port}/\n",
        ]
        address = "/v1/models/glyphs:predict"
        answer = server.ask(address, query)
        # As another one does, which serves the same.
        assert answer == (200, client.post(address, json=query).json())
        shutil.rmtree(place)
        wait_for(lambda: server.ask("/healthz")[1]["problem"])
        assert server.ask(address, query) == answer
        assert server.stop() == 0
    lines = logged(server)
    said = [x["message"] for x in lines if x["level"] == "warning"]
    assert any("gallery" in x and "no longer exists" in x for x in said)
    assert {"/healthz", address} == {
        x["path"] for x in lines if x["message"] == "request"
    }


def test_stopping_server_answers_requests_that_end_in_time(
    written, pixels, monkeypatch
) -> None:
    """Its token is in the environment."""
    monkeypatch.setitem(os.environ, "KERAS_DML_SERVE_TOKEN", "secret")
    with serving(written[0], "--stop-timeout", "5") as server:
        assert server.predict(1.0)[0] == 401
        assert server.ask("/healthz")[0] == 200
        connections = [server.connect() for _ in range(20)]
        rows = json.dumps({"instances": pixels.tolist() * 4})
        for connection in connections:
            token = {"Authorization": "Bearer secret"}
            connection.request("POST", PREDICT, rows, token)
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
        server._reader.join(10)
    logged(server)


STUCK = """
import sys, time
sys.argv[0] = "keras-dml"
def wait(*_):
    print("waiting", flush=True)
    time.sleep(600)
WHERE
from keras_dml.cli import main
main()
"""
"""Runs the command with a function that never returns."""


@pytest.mark.parametrize(
    ("where", "status"),
    [
        (
            "import keras_dml.serve.current as current\n"
            "current.read_model = wait",
            -signal.SIGTERM,
        ),
        (
            "import keras_dml.serve.pictures as pictures\n"
            "pictures.Viewer.see = wait",
            0,
        ),
    ],
    ids=["while it loads", "while a request works"],
)
def test_signal_ends_the_server_within_its_timeout(
    written, where, status
) -> None:
    code = STUCK.replace("WHERE", where)
    command = [sys.executable, "-c", code, "serve", str(written[0])]
    command += ["--port", "0", "--stop-timeout", "1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        line = process.stdout.readline()
        if status == 0:
            url = process.stdout.readline().removeprefix("Page: ").strip()
            port = int(url.rpartition(":")[2].strip("/"))
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("POST", "/search", picture())
            line = process.stdout.readline()
        assert line == "waiting\n"
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == status
        assert time.monotonic() - began < 15  # Of a machine with other work.
        if status == 0:
            connection.close()


@pytest.mark.parametrize(
    ("path", "arguments", "error"),
    [
        ("nothing", [], "There is nothing at '"),
        (
            "glyphs.keras",
            ["--host", "no.such.host.invalid"],
            "cannot listen on no.such",
        ),
        ("glyphs.keras", ["--gallery", "nothing"], "There is no index in"),
    ],
)
def test_errors_at_the_start_name_the_fault(
    written, unlogged, path, arguments, error
) -> None:
    model = str(written[0].parent / path)
    command = ["serve", model, *arguments, "--port", "0"]
    ended = CliRunner().invoke(main, command)
    assert ended.exit_code == 1
    assert error in ended.output
    assert "Traceback" not in ended.output


@pytest.fixture
def unlogged(monkeypatch) -> None:
    """The command runs in this process, whose log and memory it leaves."""
    monkeypatch.setattr("keras_dml.serve.logs.log_as_json", lambda: None)
    monkeypatch.setattr("keras_dml.serve.server.limit_memory", lambda: None)


def test_used_port_raises_before_anything_is_loaded(
    written, unlogged, monkeypatch
) -> None:
    monkeypatch.setattr("keras_dml.serve.server.load", None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            OSError, match=f"port {port}: Address already in use"
        ):
            serve(str(written[0]), settings=Settings(port=port))


def test_public_host_without_a_token_warns(
    written, unlogged, monkeypatch, caplog
) -> None:
    def fails(*_: Any) -> None:
        raise OSError("enough")

    monkeypatch.setattr("keras_dml.serve.server.load", fails)
    for host, is_warned in (("127.0.0.1", False), ("0.0.0.0", True)):  # noqa: S104
        with pytest.raises(OSError, match="enough"):
            serve(str(written[0]), settings=Settings(host=host, port=0))
        assert ("because it has no --token" in caplog.text) == is_warned
