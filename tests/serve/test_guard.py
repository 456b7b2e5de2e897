"""What holds for every request: token, hosts, sizes, times, metrics, logs."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from keras_dml.serve.app import application
from keras_dml.serve.logs import JsonFormatter
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings
from tests.serve.conftest import EMPTY, LOCAL

MODEL = "/v1/models/glyphs"
PREDICT = f"{MODEL}:predict"
SCOPE = {
    "type": "http",
    "method": "POST",
    "path": PREDICT,
    "raw_path": PREDICT.encode(),
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
}
"""A request whose body a test gives part by part."""


def client_of(**given: Any) -> TestClient:
    settings = Settings(**given)
    service = Service(EMPTY, settings)
    return TestClient(
        application(service, settings), LOCAL, raise_server_exceptions=False
    )


@pytest.mark.parametrize("size", [0, 1000])
def test_a_body_up_to_the_limit_is_read(size: int) -> None:
    answer = client_of(max_body=1000).post(PREDICT, content=bytes(size))
    assert answer.status_code == 400  # No JSON.


def test_a_gigabyte_is_refused_by_its_head() -> None:
    def never() -> Iterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    head = {"content-length": str(2**30)}
    answer = client_of().post(PREDICT, content=b"", headers=head)
    assert answer.status_code == 413
    assert "33,554,432 bytes" in answer.json()["error"]


def test_bodies_together_have_a_limit() -> None:
    """While two of the largest are held, a third is not."""
    settings = Settings(max_body=1000, request_timeout=0.2)
    app = application(Service(EMPTY, settings), settings)
    codes: list[int] = []

    def exchange(size: int) -> Any:
        body = {"type": "http.request", "body": bytes(size)}
        parts = [body | {"more_body": size == 1000}]

        async def receive() -> dict[str, Any]:
            if not parts:
                await asyncio.sleep(60)
            return parts.pop()

        async def send(message: Any) -> None:
            codes.append(message.get("status", 0))

        return app(SCOPE, receive, send)

    async def requests() -> None:
        slow = [asyncio.ensure_future(exchange(1000)) for _ in range(2)]
        await asyncio.sleep(0.05)
        await exchange(1)
        await asyncio.gather(*slow)
        await exchange(1)

    asyncio.run(requests())
    # The last one comes when both have been answered, and is no JSON.
    assert [x for x in codes if x] == [503, 504, 504, 400]


def test_a_body_of_no_stated_length_is_read_up_to_the_limit() -> None:
    """By hand, as the test client reads all of it first."""
    settings = Settings(max_body=10_000)
    app = application(Service(EMPTY, settings), settings)
    read, sent = [], []

    async def receive() -> dict[str, Any]:
        read.append(1000)
        return {"type": "http.request", "body": bytes(1000), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(SCOPE, receive, send))
    assert sent[0]["status"] == 413
    assert sum(read) == 11_000


TOKEN = "secret"  # noqa: S105


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, 401),
        ("Bearer secret", 404),
        ("bearer secret", 404),
        ("Bearer secre", 401),
        ("Bearer secrett", 401),
        ("Bearer ", 401),
        ("Bearer", 401),
        ("secret", 401),
        ("Basic secret", 401),
        ("Bearer é", 401),
    ],
)
def test_without_the_token_there_is_no_answer(header, code) -> None:
    client = client_of(token=TOKEN)
    headers = {} if header is None else {"authorization": header.encode()}
    for address in ("/v1/models/other", "/nothing"):
        answer = client.get(address, headers=headers)
        assert answer.status_code == code
    if code == 401:
        assert "Bearer" in answer.headers["www-authenticate"]
        assert TOKEN not in answer.text
    assert client.get("/metrics", headers=headers).status_code in (200, 401)
    assert client.get("/healthz", headers=headers).status_code == 200


def test_an_unknown_address_and_method_are_errors_in_json() -> None:
    client = client_of()
    assert client.get("/nothing").json() == {"error": "Not Found"}
    answer = client.post("/healthz")
    assert (answer.status_code, answer.json()) == (
        405,
        {"error": "Method Not Allowed"},
    )


def failing(error: Exception) -> TestClient:
    client = client_of()
    service: Service = client.app.state.service  # type: ignore[attr-defined]

    class Failing:
        version = 1

        @property
        def name(self) -> str:
            raise error

    service.current = Failing()  # type: ignore[assignment]
    return client


def test_a_bug_is_logged_and_says_nothing_of_the_inside(caplog) -> None:
    answer = failing(KeyError("/home/me")).get("/v1/models/glyphs")
    assert answer.status_code == 500
    assert "/home/me" not in answer.text
    assert "see its log" in answer.json()["error"]
    assert "KeyError" in caplog.text


def test_a_request_that_takes_too_long_is_answered_504() -> None:
    settings = Settings(request_timeout=0.05)
    app = application(Service(EMPTY, settings), settings)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)  # A client that sends a byte a minute.
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(SCOPE, receive, send))
    assert sent[0]["status"] == 504
    assert (b"connection", b"close") in sent[0]["headers"]


def test_metrics_count_requests_by_route_and_code() -> None:
    client = client_of()
    for address in ("/v1/models/glyphs", "/v1/models/x", "/a", "/b"):
        client.get(address)
    client.post(PREDICT, content=b"")
    answer = client.get("/metrics")
    found = {
        (sample.name, *dict(sorted(sample.labels.items())).values()): (
            sample.value
        )
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    counted = {k[1:]: v for k, v in found.items() if "requests_total" in k[0]}
    assert counted == {
        ("200", "/v1/models/{name}"): 1,
        ("404", "/v1/models/{name}"): 1,
        ("404", "unknown"): 2,
        ("400", "/v1/models/{name}:predict"): 1,
    }
    assert found[("keras_dml_galleries",)] == 0
    assert found[("keras_dml_request_seconds_count", "/v1/models/{name}")] == 2
    assert answer.headers["content-type"].startswith("text/plain; version=")


def test_a_request_is_a_line_of_json_in_the_log(caplog) -> None:
    log = logging.getLogger("keras_dml.serve.requests")
    with caplog.at_level(logging.INFO, log.name):
        client_of().post("/v1/%22%0a%e2%80%ae", content=b"12345")
    [record] = [x for x in caplog.records if x.name == log.name]
    text = JsonFormatter().format(record)
    assert text.isascii() and text.isprintable()
    line = json.loads(text)
    assert (line["level"], line["message"]) == ("info", "request")
    assert (line["method"], line["code"]) == ("POST", 404)
    assert line["path"] == '/v1/"\n\u202e'
    assert line["bytes_out"] > 10
    assert line["ms"] > 0


# Websites cannot read what a server of this machine alone answers.


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8501", "127.0.0.1", "127.0.0.1:80", "[::1]",
     "[::1]:8501"],
)  # fmt: skip
def test_this_machine_may_be_named(host: str) -> None:
    assert client_of().get(MODEL, headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "127.0.0.2", "evil@localhost",
     "localhost:80:80", "www.localhost"],
)  # fmt: skip
def test_other_names_are_refused(host: str) -> None:
    client = client_of()
    for address in ("/", MODEL, "/metrics"):
        answer = client.get(address, headers={"host": host})
        assert answer.status_code == 400
        assert "host" in answer.text


def test_what_the_server_listens_on_may_be_named() -> None:
    headers = {"host": "127.0.0.2:8501"}
    client = client_of(host="127.0.0.2")
    assert client.get(MODEL, headers=headers).status_code == 200
    client = client_of(host="localhost")
    assert client.get(MODEL, headers=headers).status_code == 400


def test_a_server_for_others_may_have_any_name() -> None:
    headers = {"host": "search.example"}
    for host in ("0.0.0.0", "::", "192.0.2.1"):  # noqa: S104
        client = client_of(host=host)
        assert client.get(MODEL, headers=headers).status_code == 200
