"""Processes of this machine, which die and are given up."""

import errno
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from keras_dml.pools import LocalWorkers, local, worker
from tests.pools.processes import driver, wait_for, workers_of
from tests.pools.works import Dies, Raises, Slow, Squares

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_package")]


@pytest.fixture(autouse=True)
def no_worker_stays() -> Iterator[None]:
    yield
    assert workers_of(os.getpid()) == []


def results(pool: LocalWorkers, work: Any, tasks: Any) -> list[Any]:
    return sorted(x.result for x in pool.run(work, tasks))


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        (FileNotFoundError(errno.ENOENT, "gone", "x"), FileNotFoundError, "x"),
        ("unpicklable", RuntimeError, r"(?s)at task .*cannot be pickled"),
        ("unpicklable result", RuntimeError, "Can't pickle local object"),
        ("exits", RuntimeError, "SystemExit: 3"),
    ],
)
def test_errors_of_a_task_are_raised_here(task, error, message) -> None:
    with pytest.raises(error, match=message):
        results(LocalWorkers(1), Raises(), [task])


def test_another_version_is_refused(monkeypatch) -> None:
    ours = {**worker.versions(), "keras": "3.0.0", "code": "abc"}
    monkeypatch.setattr(worker, "versions", lambda: ours)
    with pytest.raises(
        ValueError, match=r"keras: 3\.[\d.]+, 3\.0\.0; code of .*, abc\."
    ):
        results(LocalWorkers(1), Squares(), range(3))


def test_what_workers_print_disturbs_nobody(tmp_path, capfd) -> None:
    pool = LocalWorkers(1, logs=tmp_path / "logs")
    assert results(pool, Raises(), ["prints"] * 3) == ["prints"] * 3
    printed = (tmp_path / "logs" / "worker-0.log").read_text()
    assert printed.count("printed\n") == 3
    assert printed.count("written\n") == 3000
    assert capfd.readouterr().out == ""


def test_workers_share_the_cores(monkeypatch) -> None:
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr(local, "usable_cores", lambda: 7)
    assert results(LocalWorkers(2), Raises(), ["threads"]) == ["3"]
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "5")
    assert results(LocalWorkers(2), Raises(), ["threads"]) == ["5"]


def test_workers_have_a_gpu_each(monkeypatch) -> None:
    monkeypatch.setattr(
        local, "gpu_of", lambda number: {"TF_NUM_INTRAOP_THREADS": f"{number}"}
    )
    assert results(LocalWorkers(1), Raises(), ["threads"]) == ["0"]


@pytest.mark.parametrize(
    ("number", "at_start"),
    [(0, False), (signal.SIGKILL, True)],
)
def test_a_worker_that_dies_is_replaced(tmp_path, number, at_start) -> None:
    work = Dies(tmp_path, times=2, number=number, at_start=at_start)
    assert results(LocalWorkers(2), work, range(6)) == [0, 1, 4, 9, 16, 25]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, r"ended with SIGKILL\(-9\), probably because memory"),
        (0, r"ended with EXIT\(3\)"),
    ],
)
def test_a_task_that_ends_every_worker_is_named(tmp_path, number, how) -> None:
    work = Dies(tmp_path, times=9, number=number)
    with pytest.raises(
        RuntimeError,
        match=f"(?s)3 workers were lost at number 3; .*{how}.*its last words",
    ):
        results(LocalWorkers(2), work, range(6))


def test_a_worker_that_dies_without_a_task_is_replaced(tmp_path) -> None:
    tasks = iter(range(3))

    def slowly() -> Iterator[int]:
        yield next(tasks)
        (first,) = workers_of(os.getpid())
        first.kill()
        first.wait()
        yield from tasks

    found = results(LocalWorkers(1), Squares(), slowly())
    assert found == [0, 1, 4]


def test_closing_while_tasks_larger_than_a_pipe_are_on_their_way() -> None:
    run = LocalWorkers(2).run(Raises(), [ValueError("first"), "x" * 10**7])
    # Either may be the first.
    with pytest.raises((ValueError, RuntimeError), match="first|xxx"):
        list(run)


def test_who_closes_the_iterator_ends_the_workers(tmp_path) -> None:
    run = LocalWorkers(2).run(Slow(tmp_path, seconds=0.5), range(400))
    next(run)
    assert len(workers_of(os.getpid())) == 2
    began = time.monotonic()
    run.close()
    assert time.monotonic() - began < 50  # All tasks take 100.
    assert workers_of(os.getpid()) == []


DRIVER = """
import signal
from pathlib import Path
from keras_dml.pools import LocalWorkers
from tests.pools.works import Slow
# What a shell starts in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
for done in LocalWorkers(2).run(Slow(Path({folder!r}), seconds=60), range(9)):
    print(done)
"""


@pytest.mark.parametrize(
    ("number", "stopped"), [(signal.SIGKILL, True), (signal.SIGTERM, False)]
)
def test_workers_end_with_their_driver(tmp_path, number, stopped) -> None:
    with driver(DRIVER.format(folder=str(tmp_path))) as process:
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        workers = workers_of(process.pid)
        if stopped:
            workers[0].suspend()
        process.send_signal(number)
        assert process.wait(30) == -number
        psutil.wait_procs(workers, timeout=10)
        assert not [x for x in workers if x.is_running()]


def test_ctrl_c_ends_all(tmp_path) -> None:
    with driver(DRIVER.format(folder=str(tmp_path))) as process:
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        workers = workers_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # As a terminal does.
        printed = process.communicate(timeout=30)[0]
        assert printed.count("KeyboardInterrupt") == 1
        assert not [x for x in workers if x.is_running()]
