"""Tests of what a server says while it loads its model."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from keras_dml.serve.reception import Reception
from keras_dml.serve.settings import Settings, listen
from tests.embedding.processes import wait_for

CODE = (
    "import sys; sys.argv[0] = 'keras-dml'\n"
    "from keras_dml.cli import main\n"
    "from keras_dml.cli.commands import serve\n"
    "def load():\n"
    "    heavy = {'keras', 'tensorflow'} & set(sys.modules)\n"
    "    print(heavy, flush=True)\n"
    "    sys.stdin.read()\n"
    "serve.import_package = load\n"
    "main()"
)
"""The command, which loads for ever."""


def ask(port: int, method: str, path: str, body: bytes | None = None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


@pytest.fixture
def reception() -> Iterator[Reception]:
    with Reception(listen(Settings(port=0))) as made:
        yield made


def test_all_is_answered_until_it_ends(reception) -> None:
    port = reception.socket.getsockname()[1]
    status, headers, body = ask(port, "GET", "/healthz")
    assert (status, json.loads(body)) == (503, {"status": "loading"})
    assert headers["retry-after"] == "1"
    for method, path, sent in [
        ("POST", "/v1/models/x:predict", b"0" * 10**6),
        ("GET", "/", None),
        ("DELETE", "/v1", None),
    ]:
        status, headers, body = ask(port, method, path, sent)
        assert status == 503
        assert "is loading its model. Try again." in json.loads(body)["error"]
    assert ask(port, "HEAD", "/healthz")[2] == b""
    with socket.create_connection(("127.0.0.1", port)):  # Says nothing.
        reception.end()
        reception.end()
    # The next one waits for who listens next.
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        received = b""  # By the silent one's connection, too.
        while not received:
            answered, _ = reception.socket.accept()
            with answered:
                received = answered.recv(100)
        assert received.startswith(b"GET /healthz")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL])
def test_the_command_answers_before_it_imports(kind, tmp_path: Path) -> None:
    model = tmp_path / "model.keras"
    model.touch()
    with contextlib.closing(listen(Settings(port=0))) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", CODE, "serve", model, "--port", str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "set()\n"
        status, _, body = ask(port, "GET", "/healthz")
        assert (status, json.loads(body)["status"]) == (503, "loading")
        line = json.loads(process.stderr.readline())
        assert line["message"] == f"Loading the model {model}"
        process.send_signal(kind)
        assert process.wait(30) == -kind

    def is_free() -> bool:
        with contextlib.suppress(OSError):
            listen(Settings(port=port)).close()
            return True
        return False

    wait_for(is_free)


@pytest.mark.slow
def test_nothing_at_a_path_is_said_at_once() -> None:
    command = [sys.executable, "-c", CODE, "serve", "nowhere", "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "There is nothing at 'nowhere'. Use the folder" in ended.stderr
    assert ended.stdout == ""
