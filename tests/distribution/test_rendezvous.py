"""Workers meet in threads, as they do from different machines."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from keras_dml.distribution.rendezvous import differences, meet

FACTS = {"recipe": {"seed": 0, "epochs": 3}, "keras-dml": "1.0"}


def free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{s.getsockname()[1]}" for s in sockets]
    for one in sockets:
        one.close()
    return addresses


def met(workers, indices, facts=None, timeout=20.0) -> list[Exception | None]:
    """What `meet` raised for each of the workers that came."""

    def one(number: int, index: int) -> Exception | None:
        try:
            meet(workers, index, (facts or {}).get(number, FACTS), timeout)
        except Exception as error:
            return error
        return None

    with ThreadPoolExecutor(len(indices)) as pool:
        return list(pool.map(one, range(len(indices)), indices))


def test_all_come() -> None:
    workers = free_addresses(3)
    assert met(workers, [0, 1, 2]) == [None] * 3
    # The address is free again, for TensorFlow.
    socket.create_server(("", int(workers[0].split(":")[1]))).close()


def test_all_are_told_what_differs() -> None:
    other = {"recipe": {"seed": 1, "epochs": 3}, "keras-dml": "1.0"}
    errors = met(free_addresses(2), [0, 1], {1: other})
    for error in errors:
        assert isinstance(error, ValueError)
        assert "worker 1: recipe.seed: 0, 1." in str(error)


@pytest.mark.slow
def test_a_missing_worker_is_named_to_all() -> None:
    workers = free_addresses(3)
    errors = met(workers, [0, 1], timeout=1.0)
    for error in errors:
        assert isinstance(error, TimeoutError)
        named = f"Worker 2 ({workers[2]}) of 3"
        assert f"{named} did not connect within 1 s" in str(error)


def test_the_first_worker_is_missing() -> None:
    (error,) = met(free_addresses(2), [1], timeout=0.5)
    assert isinstance(error, TimeoutError)
    assert "Worker 0 (localhost:" in str(error)


@pytest.mark.parametrize("index", [1, 7])
def test_an_index_is_taken_or_unknown(index) -> None:
    errors = met(free_addresses(3), [0, 1, index])
    found = [error for error in errors if isinstance(error, ValueError)]
    assert found
    assert f"Received: {index}, which is taken or out of range" in str(found[0])


def test_what_else_connects_is_turned_away() -> None:
    """A probe of the port, a browser, and a number where a dict should be."""
    workers = free_addresses(2)
    port = int(workers[0].split(":")[1])

    def probe(content: bytes) -> None:
        while True:
            try:
                with socket.create_connection(("localhost", port)) as one:
                    one.sendall(content)
                return
            except ConnectionRefusedError:
                continue

    errors = []
    first = threading.Thread(target=lambda: errors.extend(met(workers, [0])))
    first.start()
    for content in (b"", b"GET / HTTP/1.1\r\n\r\n", b"5\n", b'{"index": 1}\n'):
        probe(content)
    assert met(workers, [1]) == [None]
    first.join()
    assert errors == [None]


def test_a_port_is_taken() -> None:
    with socket.create_server(("", 0)) as taken:
        address = f"localhost:{taken.getsockname()[1]}"
        (error,) = met([address, "localhost:1"], [0])
    assert isinstance(error, OSError)
    assert f"Worker 0 cannot listen on {address}" in str(error)


def test_differences_are_few_lines() -> None:
    ours = {"a": {"b": 1, "c": [1, 2]}, "d": 0}
    assert differences(ours, ours) == []
    assert differences(ours, {"a": {"b": 2, "c": [1, 2]}}) == [
        "a.b: 1, 2",
        "d: 0, None",
    ]
    assert len(differences(dict.fromkeys(map(str, range(9)), 0), {})) == 5
