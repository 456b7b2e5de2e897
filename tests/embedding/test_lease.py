"""Who writes into an object store, which has no locks."""

import json
import time

import pytest

from keras_dml.embedding import lease, storage


@pytest.fixture
def store() -> storage.Storage:
    found = storage.storage_of(f"memory://lease/{time.time_ns()}")
    assert found.sizes() == {}
    return found


def written(store: storage.Storage, age: float, token: str = "other") -> None:
    """The lease of another writer, renewed some seconds ago."""
    content = {"token": token, "holder": "process 7 on x"}
    content["time"] = time.time() - age
    store.write(lease.LEASE, json.dumps(content).encode())


def test_it_is_there_while_the_block_runs(store):
    with lease.leased(store, "embedding"):
        assert b"holder" in store.read(lease.LEASE)
        assert store.sizes() == {}  # It is hidden.
    with pytest.raises(FileNotFoundError):
        store.read(lease.LEASE)


def test_that_of_another_writer_is_respected(store):
    written(store, age=lease.STALE - 10)
    with pytest.raises(BlockingIOError, match="process 7 on x.*60 seconds"):
        with lease.leased(store, "embedding"):
            pass
    assert b"process 7 on x" in store.read(lease.LEASE)


def test_that_of_a_writer_that_was_killed_counts_no_longer(store):
    written(store, age=lease.STALE + 1)
    with lease.leased(store, "embedding"):
        assert b"process 7 on x" not in store.read(lease.LEASE)


def test_one_of_two_that_begin_at_once_goes_on(store, monkeypatch):
    monkeypatch.setattr(lease.time, "sleep", lambda _: written(store, age=0))
    with pytest.raises(BlockingIOError, match="process 7 on x"):
        with lease.leased(store, "embedding"):
            pass
    assert b"process 7 on x" in store.read(lease.LEASE)


def test_it_is_renewed(store, monkeypatch):
    monkeypatch.setattr(lease, "_RENEWED", 0.02)
    with lease.leased(store, "embedding"):
        first = store.read(lease.LEASE)
        deadline = time.monotonic() + 10
        while store.read(lease.LEASE) == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_what_is_no_lease_keeps_nobody_out(store):
    for content in (b"", b"[1]", b'{"time": "x"}'):
        store.write(lease.LEASE, content)
        with lease.leased(store, "embedding"):
            pass
