"""Tasks and work as pickles, and errors with their traceback."""

from concurrent.futures import Future
from typing import Any

import pytest

from keras_dml.pools import LocalWorkers
from keras_dml.pools.worker import Worker, attempts, pickled_work
from keras_dml.pools.worker_pool import WorkerHandle, WorkerPool
from tests.pools.works import Squares


def test_errors_of_a_task_say_where_they_come_from() -> None:
    work = Squares()
    worker = Worker(pickled_work(work))
    good, bad = attempts(work, [2, -1])
    done = good.done(worker.do(good.content, good.name))
    assert (done.task, done.result) == (2, 4)
    with pytest.raises(ValueError) as caught:
        bad.done(worker.do(bad.content, bad.name))
    assert str(caught.value) == "-1 is negative"
    note = "\n".join(caught.value.__notes__)
    assert note.startswith("A worker, at number -1, raised it:\nTraceback")
    assert "_square" in note


def test_tasks_must_be_picklable() -> None:
    with pytest.raises(ValueError, match="number <.*a task of a pool, must"):
        next(attempts(Squares(), [lambda: None]))


def test_work_of_a_script_is_refused() -> None:
    kind = type("Mine", (Squares,), {"__module__": "__main__"})
    with pytest.raises(ValueError, match="defined in the running script. Move"):
        list(LocalWorkers(1).run(kind(), [1]))


class Here(WorkerHandle):
    """A worker in this process; or one that never finds a place."""

    def __init__(self, work: bytes, has_place: bool) -> None:
        self.worker, self.has_place = Worker(work), has_place

    def has_begun(self) -> bool:
        return self.has_place

    def do(self, task: bytes, name: str) -> Future[Any]:
        future: Future[Any] = Future()
        if self.has_place:
            future.set_result(self.worker.do(task, name))
        return future

    def answer(self, future: Future[Any]) -> bytes:
        answer: bytes = future.result()
        return answer

    def end(self) -> None: ...

    def kill(self) -> None: ...


class HasOnePlace(WorkerPool):
    def _open(self, work: bytes, undo: Any) -> Any:
        return lambda number: Here(work, number == 1), 3


@pytest.mark.parametrize("count", [2, 3, 9])
def test_tasks_of_workers_without_a_place_are_done_by_others(count) -> None:
    tasks = range(2, 2 + count)
    done = list(HasOnePlace().run(Squares(), tasks))
    assert sorted(x.result for x in done) == [x**2 for x in tasks]
    assert {x.worker for x in done} == {1}
