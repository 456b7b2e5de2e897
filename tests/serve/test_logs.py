"""Every line of the log is JSON."""

import json
import logging
import sys
import warnings
from typing import Any

import pytest

from keras_dml.serve.logs import REQUESTS, JsonFormatter, log_as_json
from tests.serve.conftest import EMPTY, client_of


def formatted(message: str, *args: Any, **more: Any) -> dict[str, Any]:
    record = logging.makeLogRecord(
        {"msg": message, "args": args, "levelname": "ERROR", **more}
    )
    text = JsonFormatter().format(record)
    assert text.isascii() and text.isprintable()
    line: dict[str, Any] = json.loads(text)
    assert abs(line.pop("time") - record.created) < 1e-3
    return line


@pytest.mark.parametrize("name", ["é", "a\udcff.keras"])
def test_message_is_one_json_line(name: str) -> None:
    line = formatted("two\nlines of %s, \x1b[2J\x9b\u202e", name)
    message = f"two\nlines of {name}, \x1b[2J\x9b\u202e"
    assert line == {"level": "error", "message": message}


def test_exception_is_part_of_its_line() -> None:
    try:
        raise KeyError("/home/me")
    except KeyError:
        line = formatted("It failed.", exc_info=sys.exc_info())
    assert line["message"] == "It failed."
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith("KeyError: '/home/me'")


def test_request_is_a_line_without_control_characters(caplog) -> None:
    log = logging.getLogger(REQUESTS)
    with caplog.at_level(logging.INFO, log.name), client_of(EMPTY) as client:
        client.post("/v1/%22%0a%e2%80%ae", content=b"12345")
    [record] = [x for x in caplog.records if x.name == log.name]
    text = JsonFormatter().format(record)
    assert text.isascii() and text.isprintable()
    line = json.loads(text)
    assert (line["level"], line["message"]) == ("info", "request")
    assert (line["method"], line["code"]) == ("POST", 404)
    assert line["path"] == '/v1/"\n\u202e'
    assert line["bytes_out"] > 10
    assert line["ms"] > 0


@pytest.fixture
def root(monkeypatch) -> logging.Handler:
    handler = logging.StreamHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    monkeypatch.setattr(warnings, "showwarning", None)
    requests = logging.getLogger(REQUESTS)
    monkeypatch.setattr(requests, "level", requests.level)
    log_as_json()
    return handler


def test_loggers_and_warnings_write_json(root, monkeypatch) -> None:
    assert isinstance(root.formatter, JsonFormatter)
    assert logging.getLogger(REQUESTS).isEnabledFor(logging.INFO)
    said: list[logging.LogRecord] = []
    monkeypatch.setattr(root, "emit", said.append)
    shown = warnings.showwarning
    shown("100 %s of it", UserWarning, "file.py", 1)  # type: ignore[arg-type]
    assert [x.getMessage() for x in said] == ["100 %s of it"]
