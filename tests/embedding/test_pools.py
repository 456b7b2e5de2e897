"""What holds for every pool, and which one is chosen."""

import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, Timer
from typing import Any

import pytest
import tensorflow as tf

from keras_dml.embedding import workers
from keras_dml.embedding.local import LocalWorkers, gpu_of
from keras_dml.embedding.on_ray import RayActors
from keras_dml.embedding.pools import pool_of
from keras_dml.embedding.workers import (
    InProcess,
    InWorker,
    Lost,
    Pool,
    Worker,
    WorkerPool,
)
from tests.embedding.works import Raises, Slow, Squares, StartRaises

SIX = {i: i**2 for i in range(6)}


def actors() -> Pool:
    pytest.importorskip("ray")
    return RayActors(2, "local")


@pytest.fixture(
    params=[
        InProcess,
        pytest.param(LocalWorkers, marks=pytest.mark.slow),
        pytest.param(RayActors, marks=[pytest.mark.engines, pytest.mark.slow]),
    ]
)
def make(request: pytest.FixtureRequest) -> Callable[[], Pool]:
    if request.param is LocalWorkers:
        request.getfixturevalue("light_package")
        return lambda: LocalWorkers(2)
    return actors if request.param is RayActors else InProcess


def test_each_task_is_done_once(
    make: Callable[[], Pool], tmp_path: Path
) -> None:
    taken: list[int] = []
    tasks = (taken.append(i) or i for i in range(20))
    run = make().run(Slow(tmp_path, seconds=0.01), tasks)
    assert taken == []
    done = [next(run)]
    assert len(taken) <= 6
    done += run
    assert sorted(done) == [(i, i**2) for i in range(20)]
    begun = sum((x.read_text().split() for x in tmp_path.iterdir()), [])
    assert sorted(map(int, begun)) == list(range(20))
    again = make().run(Squares(), iter([7, 8, 9]))
    assert next(again) in [(7, 49), (8, 64)]
    again.close()
    assert list(make().run(Squares(), [])) == []


def test_errors_that_users_can_mend(make: Callable[[], Pool]) -> None:
    with pytest.raises(ValueError) as caught:
        list(make().run(Squares(), [2, -1]))
    assert str(caught.value) == "-1 is negative"
    with pytest.raises(OSError) as full:
        list(make().run(Raises(), ["unpicklable OSError"]))
    assert str(full.value) == "the disk is full"
    with pytest.raises(ImportError) as missing:
        list(make().run(StartRaises(), [1]))
    assert str(missing.value) == "no module that squares"


def test_this_process_does_it_unless_others_are_asked_for() -> None:
    assert isinstance(pool_of(), InProcess)
    assert isinstance(pool_of(1, ray=False), InProcess)
    pool = pool_of(3)
    assert isinstance(pool, LocalWorkers) and pool.count == 3


def test_ray_is_named_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "keras-dml\[ray\]"'):
        pool_of(ray=True)


@pytest.mark.engines
def test_ray_is_chosen() -> None:
    pytest.importorskip("ray")
    for ray, address in ((True, "auto"), ("host:6379", "host:6379")):
        pool = pool_of(2, ray, gpus=0)
        assert isinstance(pool, RayActors)
        assert (pool.count, pool.address, pool.gpus) == (2, address, 0)


def test_threads_are_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    found = workers.sharing(3)
    assert found["OPENBLAS_NUM_THREADS"] == "3"
    assert found["OMP_NUM_THREADS"] == "5"


@pytest.mark.parametrize(
    ("count", "own", "expected"),
    [
        (1, None, [None, None, None]),
        (2, None, ["0", "1", "0"]),
        (2, "3,5,9", ["3", "5", "3"]),  # There is no GPU 9.
    ],
)
def test_processes_take_turns_on_several_gpus(
    count: int,
    own: str | None,
    expected: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = [object()] * count
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if own:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", own)
    given = [gpu_of(number).get("CUDA_VISIBLE_DEVICES") for number in range(3)]
    assert given == expected


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(ValueError, match="Received: number <.*_thread.lock"):
        list(LocalWorkers(1).run(Squares(), [Lock()]))


# Which worker does what, in this process.


class Here(Worker):
    """A worker of this process, with a fate.

    Args:
        work: The work, a pickle.
        number: Its number.
        fate: "lives"; "waits" for a place forever; "dies at" tasks with names
            that begin so, or "dies late at" them.
    """

    def __init__(self, work: bytes, number: int, fate: str) -> None:
        self.number, self.fate = number, fate
        self.worker = InWorker(work)
        self.name = ""

    def do(self, task: bytes | None, name: str) -> Future[Any]:
        self.name = name
        future: Future[Any] = Future()
        if self.fate.startswith("dies late") and task is not None:
            Timer(0.2, future.set_result, [b""]).start()
        elif self.fate != "waits":
            future.set_result(self.worker.do(task, name))
        return future

    def answer(self, future: Future[Any]) -> bytes:
        how, _, what = self.fate.partition(" at ")
        if how.startswith("dies") and self.name.startswith(what):
            raise Lost("was unlucky.")
        answer: bytes = future.result()
        return answer

    def end(self) -> None: ...


class Fated(WorkerPool):
    """Workers by number; those that replace them have the later fates."""

    def __init__(self, *fates: list[str]) -> None:
        self.fates = fates

    def _open(self, work: bytes, undo: Any) -> Any:
        def begin(number: int) -> Worker:
            return Here(work, number, self.fates[number].pop(0))

        return begin, len(self.fates)


@pytest.mark.parametrize(
    "pool",
    [
        Fated(["waits"], ["lives"], ["waits"]),
        Fated(["dies at number", "waits"], ["lives"]),
        Fated(["dies late at number", "waits"], ["lives"]),
        Fated(["dies at its start", "dies at its start", "lives"]),
    ],
)
def test_others_do_what_a_worker_does_not(pool: Pool) -> None:
    """For one that was lost, there may be no other place."""
    assert dict(pool.run(Squares(), range(6))) == SIX


@pytest.mark.parametrize("what", ["its start", "number 0"])
def test_what_every_worker_dies_at_is_named(what: str) -> None:
    pool = Fated([f"dies at {what}"] * 3)
    with pytest.raises(
        RuntimeError, match=f"3 workers were lost at {what}; .* was unlucky"
    ):
        list(pool.run(Squares(), range(6)))


def test_errors_of_a_task_say_where_they_come_from() -> None:
    with pytest.raises(ValueError) as caught:
        list(Fated(["lives"]).run(Squares(), [2, -1]))
    note = "\n".join(caught.value.__notes__)
    assert note.startswith("A worker, at number -1, raised it:\nTraceback")
    assert "_square" in note
