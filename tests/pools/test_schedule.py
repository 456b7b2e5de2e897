"""Which worker does what, with workers that do as a test says."""

import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from keras_dml.pools import schedule
from keras_dml.pools.schedule import Crew, CrewPool, Lost
from keras_dml.pools.serving import Server
from tests.pools.works import Squares

LOST = "lost"
SILENT = "silent"


class Scripted(Crew, CrewPool):
    """Workers in this process.

    Args:
        acts: What becomes of the task of a worker, both by number; None is
            that it is done. The task None is the start.
    """

    def __init__(
        self,
        acts: Callable[[int, int | None], str | None] = lambda *_: None,
        count: int = 2,
        timeout: float | None = None,
    ) -> None:
        super().__init__(timeout)
        self.acts = acts
        self.count = count
        self.clock = 0.0
        self.log: list[tuple[Any, ...]] = []
        self.open: deque[tuple[int, bytes | Lost]] = deque()
        self.servers: dict[int, Server] = {}
        self.numbers: dict[int, int] = {}

    def _crew(self, order: bytes) -> tuple[Crew, int]:
        self.order = order
        return self, self.count

    def start(self, number: int) -> int:
        handle = len(self.servers)
        self.servers[handle] = Server(self.order)
        self.numbers[handle] = number
        self.log.append(("start", number))
        self._act(handle, None, self.servers[handle].start)
        return handle

    def give(self, worker: int, task: bytes) -> None:
        number = pickle.loads(task)
        self.log.append(("give", self.numbers[worker], number))
        self._act(worker, number, lambda: self.servers[worker].do(task))

    def _act(
        self, worker: int, task: int | None, do: Callable[[], bytes]
    ) -> None:
        act = self.acts(self.numbers[worker], task)
        if act == LOST:
            self.open.append((worker, Lost("was eaten.")))
        elif act != SILENT:
            self.open.append((worker, do()))

    def kill(self, worker: int) -> None:
        self.log.append(("kill", self.numbers[worker]))

    def answer(self, timeout: float) -> tuple[int, bytes | Lost] | None:
        if self.open:
            return self.open.popleft()
        self.clock += timeout
        return None

    def end(self) -> None:
        self.log.append(("end",))

    def close(self) -> None:
        self.log.append(("close",))


@pytest.fixture(autouse=True)
def clock(monkeypatch) -> list[Scripted]:
    """Time passes when a crew of these has nothing to say."""
    crews: list[Scripted] = []
    monkeypatch.setattr(
        schedule.time, "monotonic", lambda: sum(x.clock for x in crews)
    )
    return crews


def times(number: int, act: str) -> Callable[[int, int | None], str | None]:
    """Task 3 fails a number of times."""
    left = iter(range(number))

    def acts(_: int, task: int | None) -> str | None:
        return act if task == 3 and next(left, None) is not None else None

    return acts


def results(pool: Scripted, tasks: Any) -> list[tuple[int, int]]:
    return sorted((x.task, x.result) for x in pool.run(Squares(), tasks))


SQUARES = [(i, i**2) for i in range(6)]


def test_workers_are_started_when_there_are_tasks_for_them() -> None:
    pool = Scripted(count=4)
    assert results(pool, range(2)) == SQUARES[:2]
    assert pool.log == [
        ("start", 0), ("start", 1), ("give", 0, 0), ("give", 1, 1), ("end",),
        ("close",),
    ]  # fmt: skip
    nothing = Scripted()
    assert results(nothing, []) == []
    assert nothing.log == [("end",), ("close",)]


def test_tasks_are_taken_when_there_are_workers_for_them() -> None:
    taken = []
    tasks = (taken.append(i) or i for i in range(100))
    run = Scripted(count=2).run(Squares(), tasks)
    for i in range(10):
        assert next(run).result == i**2
        assert len(taken) <= i + 5
    run.close()


def test_who_closes_the_iterator_ends_all() -> None:
    pool = Scripted()
    run = pool.run(Squares(), range(5))
    next(run)
    run.close()
    assert pool.log[-1] == ("close",)
    assert ("end",) not in pool.log


def test_tasks_of_lost_workers_are_given_again(caplog) -> None:
    pool = Scripted(times(2, LOST))
    assert results(pool, range(6)) == SQUARES
    assert pool.log.count(("start", 0)) + pool.log.count(("start", 1)) == 4
    assert "lost at number 3, is replaced: it was eaten." in caplog.text


def test_a_task_takes_three_workers_at_the_most() -> None:
    pool = Scripted(times(3, LOST))
    with pytest.raises(
        RuntimeError, match=r"^3 workers were lost at number 3; .* was eaten\.$"
    ):
        results(pool, range(6))
    assert pool.log[-1] == ("close",)


def test_workers_lost_at_different_tasks_do_not_end_the_run() -> None:
    lost = set()

    def acts(_: int, task: int | None) -> str | None:
        new = task not in lost and task is not None
        lost.add(task)
        return LOST if new else None

    assert results(Scripted(acts), range(6)) == SQUARES


def test_a_worker_that_cannot_start_is_tried_three_times() -> None:
    left = iter(range(2))
    pool = Scripted(lambda _, task: LOST if next(left, 9) < 9 else None)
    assert results(pool, range(6)) == SQUARES

    def never(_: int, task: int | None) -> str | None:
        return LOST if task is None else None

    with pytest.raises(RuntimeError, match="3 workers were lost at the start;"):
        results(Scripted(never), range(6))


def test_starts_that_fail_now_and_then_do_not_end_the_run() -> None:
    starts = iter(range(100))

    def acts(_: int, task: int | None) -> str | None:
        if task is None:
            return LOST if next(starts) % 2 else None
        return LOST if task not in lost and not lost.add(task) else None

    lost: set[int] = set()
    assert results(Scripted(acts, count=1), range(6)) == SQUARES


def test_a_task_that_hangs_is_given_again(clock, caplog) -> None:
    pool = Scripted(times(2, SILENT), timeout=30)
    clock.append(pool)
    assert results(pool, range(6)) == SQUARES
    assert 60 < pool.clock < 70
    assert sum(x[0] == "kill" for x in pool.log) == 2
    assert "did not respond within 30 s and was killed" in caplog.text


def test_a_task_that_hangs_again_and_again_ends_the_run(clock) -> None:
    pool = Scripted(times(3, SILENT), timeout=30)
    clock.append(pool)
    with pytest.raises(RuntimeError, match="at number 3;.*larger timeout"):
        results(pool, range(6))


def test_patience_grows_with_the_tasks(clock, monkeypatch) -> None:
    pool = Scripted(times(1, SILENT))
    clock.append(pool)
    assert results(pool, range(6)) == SQUARES
    assert 600 < pool.clock < 610
    monkeypatch.setattr(schedule, "PATIENCE", 1e-9)
    quick = Scripted(times(1, SILENT))
    clock[:] = [quick]
    assert results(quick, range(6)) == SQUARES
    assert quick.clock <= 2


def test_a_start_that_hangs_ends_the_run(clock) -> None:
    pool = Scripted(lambda *_: SILENT, timeout=5)
    clock.append(pool)
    with pytest.raises(RuntimeError, match="lost at the start;.* within 600 s"):
        results(pool, range(6))


def test_time_in_which_this_process_is_stopped_does_not_count(clock) -> None:
    """As by Ctrl-Z, or a consumer that takes its time."""
    pool = Scripted(timeout=30)
    clock.append(pool)
    answer = pool.answer

    def stopped(timeout: float) -> Any:
        pool.clock += 1000
        return answer(timeout)

    pool.answer = stopped
    assert results(pool, range(6)) == SQUARES
    assert ("kill", 0) not in pool.log


def test_what_a_killed_worker_still_says_is_not_heard(clock) -> None:
    pool = Scripted(times(1, SILENT), timeout=30, count=1)
    clock.append(pool)
    kill = pool.kill

    def late(worker: int) -> None:
        kill(worker)
        pool.open.append((worker, pool.servers[worker].do(pickle.dumps(3))))
        pool.open.append((worker, Lost("was killed.")))

    pool.kill = late
    assert results(pool, range(6)) == SQUARES


def test_a_worker_that_still_starts_is_not_waited_for() -> None:
    pool = Scripted(lambda number, _: SILENT if number == 1 else None)
    assert results(pool, range(6)) == SQUARES
    assert pool.log[-3:] == [("kill", 1), ("end",), ("close",)]


def test_errors_of_a_task_say_where_they_come_from() -> None:
    with pytest.raises(ValueError) as caught:
        results(Scripted(count=1), [2, -1])
    assert str(caught.value) == "-1 is negative"
    note = "\n".join(caught.value.__notes__)
    assert note.startswith("Worker 0, at number -1, raised it:\nTraceback")
    assert "_square" in note


def test_the_timeout_is_checked() -> None:
    with pytest.raises(ValueError, match="`timeout` of Scripted must be gre"):
        Scripted(timeout=0)


def test_tasks_must_be_picklable() -> None:
    with pytest.raises(ValueError, match="number <.*a task of a pool, must"):
        results(Scripted(), [lambda: None])


def test_work_of_a_script_is_refused() -> None:
    kind = type("Mine", (Squares,), {"__module__": "__main__"})
    with pytest.raises(ValueError, match="defined in the running script. Move"):
        list(Scripted().run(kind(), [1]))
