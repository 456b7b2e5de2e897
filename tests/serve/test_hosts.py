"""Websites cannot read what a server of this machine alone answers."""

import pytest

from tests.serve.test_guard import client_of

MODEL = "/v1/models/glyphs"


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
