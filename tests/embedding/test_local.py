"""Processes of this machine, which die and are given up."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from keras_dml.embedding import local
from keras_dml.embedding.local import LocalWorkers
from tests.embedding.processes import driver, wait_for, workers_of
from tests.embedding.works import Dies, Raises, Slow, Squares

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_package")]


@pytest.fixture(autouse=True)
def no_worker_stays() -> Iterator[None]:
    yield
    assert workers_of(os.getpid()) == []


def results(pool: LocalWorkers, work: Any, tasks: Any) -> list[Any]:
    return sorted(result for _, result in pool.run(work, tasks))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("unpicklable", r"(?s)at task .*cannot be pickled"),
        ("unpicklable result", "Can't pickle local object"),
        ("exits", "SystemExit: 3"),
    ],
)
def test_errors_of_a_task_are_raised_here(task, message) -> None:
    with pytest.raises(RuntimeError, match=message):
        list(LocalWorkers(1).run(Raises(), [task]))


def test_what_workers_print_disturbs_nobody(capfd) -> None:
    assert results(LocalWorkers(1), Raises(), ["prints"] * 3) == ["prints"] * 3
    assert capfd.readouterr().out == ""


def test_workers_share_the_cores(monkeypatch) -> None:
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr(local, "usable_cores", lambda: 7)
    assert results(LocalWorkers(2), Raises(), ["threads"]) == ["3"]
    monkeypatch.setattr(
        local, "gpu_of", lambda number: {"TF_NUM_INTRAOP_THREADS": f"{number}"}
    )
    assert results(LocalWorkers(2), Raises(), ["threads"]) == ["0"]


@pytest.mark.parametrize(
    ("number", "at_start"), [(0, False), (signal.SIGKILL, True)]
)
def test_a_worker_that_dies_is_replaced(tmp_path, number, at_start) -> None:
    work = Dies(tmp_path, times=2, number=number, at_start=at_start)
    assert results(LocalWorkers(2), work, range(6)) == [0, 1, 4, 9, 16, 25]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_task_that_ends_every_worker_is_named(tmp_path) -> None:
    work = Dies(tmp_path, times=9)
    with pytest.raises(
        RuntimeError,
        match=r"(?s)3 workers were lost at number 3; .*SIGKILL\(-9\).*its last",
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
from keras_dml.embedding.local import LocalWorkers
from tests.embedding.works import Slow
# What a shell starts in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
for done in LocalWorkers(2).run(Slow(Path({folder!r}), seconds=60), range(9)):
    print(done)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_driver(tmp_path, number) -> None:
    with driver(DRIVER.format(folder=str(tmp_path))) as process:
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        workers = workers_of(process.pid)
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
