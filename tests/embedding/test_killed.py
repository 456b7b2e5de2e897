"""Embedding whose processes are killed, and which goes on."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from keras_dml.embedding import EmbeddingShards, embed
from tests.embedding import long_run
from tests.embedding.processes import WORKER

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return embed(long_run.network(), long_run.images())


def check(found: EmbeddingShards, expected: np.ndarray) -> None:
    """Every image is there once, and as one process embeds it."""
    again = EmbeddingShards(found.folder, verify=True)
    assert again.columns["row"] == list(range(long_run.COUNT))
    assert again.ids == [str(row) for row in range(long_run.COUNT)]
    np.testing.assert_array_equal(again.labels, np.arange(long_run.COUNT) % 7)
    np.testing.assert_allclose(again.array(), expected, atol=1e-6)


def shards(out: Path) -> set[str]:
    return {x.name for x in out.glob("shard-*.parquet")}


def wait_for(out: Path, count: int, process: subprocess.Popen) -> None:
    """Until so many shards are there, or the process has ended."""
    deadline = time.monotonic() + 180
    while len(shards(out)) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def descendants(process: int) -> Iterator[int]:
    """The processes that a process has started, and theirs."""
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            yield child
            yield from descendants(child)


def is_worker(process: int) -> bool:
    return WORKER.encode() in Path(f"/proc/{process}/cmdline").read_bytes()


def is_alive(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_driver_that_is_killed(tmp_path, expected):
    out = tmp_path / "out"
    command = [sys.executable, long_run.__file__, out, "2"]
    process = subprocess.Popen(command)
    try:
        wait_for(out, 1, process)
        started = list(descendants(process.pid))
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert len(started) >= 2
    deadline = time.monotonic() + 20
    while any(map(is_alive, started)):  # Workers end with the driver.
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kept = {x: (out / x).stat().st_mtime_ns for x in shards(out)}
    subprocess.run(command, check=True)
    assert {x: (out / x).stat().st_mtime_ns for x in kept} == kept
    check(EmbeddingShards(out), expected)
    assert not [x for x in out.iterdir() if x.name.startswith(".shard")]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_worker_that_is_killed(tmp_path, expected, caplog):
    out = tmp_path / "out"
    killed: list[int] = []

    def kill() -> None:
        while len(shards(out)) < 3:
            time.sleep(0.005)
        # The process of these tests may have started others.
        mine = [x for x in descendants(os.getpid()) if is_worker(x)]
        killed.extend(mine[:1])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    found = long_run.embedded(str(out), workers=2)
    thread.join()
    assert killed
    check(found, expected)
    assert "SIGKILL(-9)" in caplog.text
