"""Which worker does which task, and what becomes of those that were lost.

This is the same for processes of this machine and for actors of an engine; a
crew is what starts, asks and kills them.
"""

import abc
import contextlib
import logging
import pickle
import statistics
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic

from keras_dml.pools.base import Done, Pool, Result, Task, Work
from keras_dml.pools.serving import Answer, Failure, order_for, to_bytes
from keras_dml.utils.arguments import check_positive

logger = logging.getLogger(__name__)

MOST_LOST = 3
"""Workers that one task may take with it, or that may fail to start in a
row."""

PATIENCE = 600.0
"""Seconds that a start, or a task of unknown length, may take at least."""

_TIMES_MEDIAN = 20

_RECENT = 100
"""Tasks that the median is of."""

_TICK = 1.0


@dataclass(frozen=True)
class Lost:
    """What a crew says of a worker that is no more.

    Attributes:
        how: The rest of a sentence about the worker, such as "was killed by
            SIGKILL".
    """

    how: str


class Crew(abc.ABC):
    """Workers of one run, each a handle that can be hashed."""

    @abc.abstractmethod
    def start(self, number: int) -> Any:
        """Begins to start a worker, and returns it; it answers later."""

    @abc.abstractmethod
    def give(self, worker: Any, task: bytes) -> None:
        """Gives a task to a worker that has none; it answers later."""

    @abc.abstractmethod
    def kill(self, worker: Any) -> None:
        """Ends a worker at once; what it answers is of no interest."""

    @abc.abstractmethod
    def answer(self, timeout: float) -> tuple[Any, bytes | Lost] | None:
        """A worker and what it answers; None if none does so in time."""

    @abc.abstractmethod
    def end(self) -> None:
        """Lets all workers, which have no task, end by themselves."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends all workers at once; called last, whatever happened."""


class CrewPool(Pool):
    """A pool of workers that may be lost."""

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None:
            check_positive(type(self).__name__, "timeout", timeout)
        self.timeout = timeout

    @abc.abstractmethod
    def _crew(self, order: bytes) -> tuple[Crew, int]:
        """Workers for a run, none of them started, and how many at most."""

    def run(
        self, work: Work[Task, Result], tasks: Iterable[Task]
    ) -> Iterator[Done[Task, Result]]:
        crew, count = self._crew(order_for(work))
        with contextlib.closing(crew):
            yield from _Run(crew, count, work, tasks, self.timeout).done()
            crew.end()


@dataclass
class _Trial(Generic[Task]):
    """A task, in bytes as well, and how many workers it has taken along."""

    task: Task
    content: bytes
    lost: int = 0


@dataclass
class _Worker(Generic[Task]):
    """What a worker is at; it starts until it has answered once."""

    number: int
    starts: bool = True
    trial: _Trial[Task] | None = None
    waited: float = 0.0


@dataclass
class _Run(Generic[Task, Result]):
    crew: Crew
    count: int
    work: Work[Task, Result]
    tasks: Iterable[Task]
    timeout: float | None
    workers: dict[Any, _Worker[Task]] = field(default_factory=dict)
    pending: deque[_Trial[Task]] = field(default_factory=deque)
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    starts_lost: int = 0

    def done(self) -> Iterator[Done[Task, Result]]:
        rest = iter(self.tasks)
        while True:
            self._take(rest)
            if not self.pending and not self._busy():
                self._kill_starting()
                return
            self._give()
            began = time.monotonic()
            answer = self.crew.answer(_TICK)
            done = self._answered(*answer) if answer else None
            # Time in which this process was stopped does not count.
            self._end_hanging(min(time.monotonic() - began, 2 * _TICK))
            if done:
                # While the result is looked at, the worker is not to wait.
                self._give()
                yield done

    def _take(self, rest: Iterator[Task]) -> None:
        """Keeps a task in hand for each worker."""
        while len(self.pending) < self.count:
            try:
                task = next(rest)
            except StopIteration:
                return
            called = f"{self.work.called(task)}, a task of a pool,"
            self.pending.append(_Trial(task, to_bytes(called, task)))

    def _kill_starting(self) -> None:
        """Ends those that nobody waits for any more."""
        for handle, worker in self.workers.items():
            if worker.starts:
                self.crew.kill(handle)

    def _busy(self) -> bool:
        return any(x.trial for x in self.workers.values())

    def _give(self) -> None:
        for handle, worker in self.workers.items():
            if not self.pending:
                return
            if not worker.starts and worker.trial is None:
                worker.trial = self.pending.popleft()
                worker.waited = 0
                self.crew.give(handle, worker.trial.content)
        starting = sum(x.starts for x in self.workers.values())
        numbers = {x.number for x in self.workers.values()}
        free = [x for x in range(self.count) if x not in numbers]
        for number in free[: max(len(self.pending) - starting, 0)]:
            self.workers[self.crew.start(number)] = _Worker(number)

    def _answered(
        self, handle: Any, answer: bytes | Lost
    ) -> Done[Task, Result] | None:
        worker = self.workers.get(handle)
        if worker is None:  # It was killed.
            return None
        if isinstance(answer, Lost):
            del self.workers[handle]
            self._lost(worker, answer.how)
            return None
        said: Answer | Failure = pickle.loads(answer)
        trial, worker.trial = worker.trial, None
        if isinstance(said, Failure):
            at = self.work.called(trial.task) if trial else "the start"
            raise said.error(f"Worker {worker.number}, at {at},")
        self.starts_lost = 0
        worker.starts = False
        if trial is None:
            return None
        self.seconds.append(said.seconds)
        return Done(trial.task, said.result, said.seconds, worker.number)

    def _lost(self, worker: _Worker[Task], how: str) -> None:
        if worker.trial is None:
            self.starts_lost += 1
            lost, at = self.starts_lost, "the start"
        else:
            worker.trial.lost += 1
            self.pending.appendleft(worker.trial)
            lost, at = worker.trial.lost, self.work.called(worker.trial.task)
        if lost == MOST_LOST:
            raise RuntimeError(
                f"{MOST_LOST} workers were lost at {at}; the last one {how}"
            )
        logger.warning(
            "Worker %d, lost at %s, is replaced: it %s", worker.number, at, how
        )

    def _end_hanging(self, passed: float) -> None:
        """Kills workers that were too long at it."""
        for handle, worker in list(self.workers.items()):
            if not worker.starts and worker.trial is None:
                continue
            worker.waited += passed
            limit = self._limit(worker)
            if worker.waited > limit:
                self.crew.kill(handle)
                del self.workers[handle]
                self._lost(
                    worker,
                    f"did not respond within {limit:.0f} s and was killed. If "
                    "that is too short, use a larger timeout",
                )

    def _limit(self, worker: _Worker[Task]) -> float:
        if worker.starts:
            return max(PATIENCE, self.timeout or 0)
        if self.timeout is not None:
            return self.timeout
        median = statistics.median(self.seconds) if self.seconds else 0
        return max(PATIENCE, _TIMES_MEDIAN * median)
