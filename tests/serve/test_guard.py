"""Checks of every request: token, hosts, sizes, times, metrics, logs."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from keras_dml.serve.app import application
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


def client_of(**options: Any) -> TestClient:
    settings = Settings(**options)
    service = Service(EMPTY, settings)
    return TestClient(
        application(service, settings), LOCAL, raise_server_exceptions=False
    )


@pytest.mark.parametrize("size", [0, 1000])
def test_body_up_to_the_limit_is_read(size: int) -> None:
    answer = client_of(max_body=1000).post(PREDICT, content=bytes(size))
    assert answer.status_code == 400  # No JSON.


def test_gigabyte_is_rejected_by_its_header() -> None:
    def never() -> Iterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    head = {"content-length": str(2**30)}
    answer = client_of().post(PREDICT, content=b"", headers=head)
    assert answer.status_code == 413
    assert "33,554,432 bytes" in answer.json()["error"]


def test_bodies_together_have_a_limit() -> None:
    """While two of the largest bodies are held, a third must wait."""
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
def test_requests_without_the_token_are_answered_401(header, code) -> None:
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


def test_unknown_addresses_and_methods_give_json_errors() -> None:
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


def test_bug_is_logged_and_hidden_from_the_client(caplog) -> None:
    answer = failing(KeyError("/home/me")).get("/v1/models/glyphs")
    assert answer.status_code == 500
    assert "/home/me" not in answer.text
    assert "see its log" in answer.json()["error"]
    assert "KeyError" in caplog.text


def test_slow_request_is_answered_504() -> None:
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
    samples = {
        (sample.name, *dict(sorted(sample.labels.items())).values()): (
            sample.value
        )
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    counted = {k[1:]: v for k, v in samples.items() if "requests_total" in k[0]}
    assert counted == {
        ("200", "/v1/models/{name}"): 1,
        ("404", "/v1/models/{name}"): 1,
        ("404", "unknown"): 2,
        ("400", "/v1/models/{name}:predict"): 1,
    }
    assert samples[("keras_dml_galleries",)] == 0
    assert (
        samples[("keras_dml_request_seconds_count", "/v1/models/{name}")] == 2
    )
    assert answer.headers["content-type"].startswith("text/plain; version=")


LOCAL_NAMES = ("localhost", "LOCALHOST:8501", "127.0.0.1", "127.0.0.1:80",
               "[::1]", "[::1]:8501")  # fmt: skip
OTHER_NAMES = ("evil.example", "127.0.0.1.evil.example", "127.0.0.2",
               "evil@localhost", "localhost:80:80",
               "www.localhost")  # fmt: skip


@pytest.mark.parametrize(
    ("host", "name", "code"),
    [
        *[("127.0.0.1", name, 200) for name in LOCAL_NAMES],
        *[("127.0.0.1", name, 400) for name in OTHER_NAMES],
        ("127.0.0.2", "127.0.0.2:8501", 200),
        ("localhost", "127.0.0.2:8501", 400),
        *[(x, "search.example", 200) for x in ("0.0.0.0", "::", "192.0.2.1")],  # noqa: S104
    ],
)
def test_local_server_answers_to_local_names_alone(host, name, code) -> None:
    """Websites cannot read answers of a local server."""
    client = client_of(host=host)
    for address in ("/", MODEL, "/metrics"):
        answer = client.get(address, headers={"host": name})
        assert answer.status_code == code
        assert code == 200 or "host" in answer.text
