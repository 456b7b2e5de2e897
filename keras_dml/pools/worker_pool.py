"""Pools of workers that may die: which worker does which task."""

import abc
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias

from keras_dml.pools.base import Done, Pool, Result, Task, Work
from keras_dml.pools.worker import Attempt, attempts, pickled_work
from keras_dml.utils.arguments import Checked

logger = logging.getLogger(__name__)

MOST_LOST = 3
"""Workers that may die at one task."""


class Lost(Exception):
    """A worker died; the message is the rest of a sentence about it."""


class WorkerHandle(abc.ABC):
    """A worker, as a pool sees it."""

    @abc.abstractmethod
    def do(self, task: bytes, name: str) -> Future[Any]:
        """Does a task, as `worker.Worker` does."""

    def has_begun(self) -> bool:
        """Whether it runs; on a cluster, it may wait for a place forever."""
        return True

    @abc.abstractmethod
    def answer(self, future: Future[Any]) -> bytes:
        """The answer to a task that is done; `Lost` if the worker died."""

    @abc.abstractmethod
    def end(self) -> None:
        """Ends the worker, which has nothing to do."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Ends the worker at once; it may be dead already."""


Begin: TypeAlias = Callable[[int], WorkerHandle]
"""Begins a worker; one that replaces another has its number."""


class WorkerPool(Checked, Pool):
    """A pool of workers that may die."""

    @abc.abstractmethod
    def _open(
        self, work: bytes, undo: contextlib.ExitStack
    ) -> tuple[Begin, int]:
        """How to begin a worker of a run, and how many there are at most.

        Args:
            work: The work, a result of `pickled_work`.
            undo: What to do after the run, when no worker is left.
        """

    def run(
        self, work: Work[Task, Result], tasks: Iterable[Task]
    ) -> Iterator[Done[Task, Result]]:
        with contextlib.ExitStack() as undo:
            begin, count = self._open(pickled_work(work), undo)
            free = list(range(count))
            run = _Run(begin, attempts(work, tasks), free)
            undo.callback(run.kill)
            yield from run.done()
            run.end()


@dataclass
class _Run(Generic[Task]):
    """A run: its workers, and the tasks that they do.

    Attributes:
        begin: Begins a worker.
        left: The tasks that no worker has had.
        free: Numbers of workers without a task.
        workers: Workers that have begun, by number.
        running: The attempts of the others.
        again: Tasks whose worker died.
    """

    begin: Begin
    left: Iterator[Attempt[Task]]
    free: list[int]
    workers: dict[int, WorkerHandle] = field(default_factory=dict)
    running: dict[Future[Any], Attempt[Task]] = field(default_factory=dict)
    again: list[Attempt[Task]] = field(default_factory=list)

    def done(self) -> Iterator[Done[Task, Any]]:
        self._assign()
        while self.running:
            ready, _ = wait(self.running, 1.0, FIRST_COMPLETED)
            for future in ready:
                attempt = self.running.pop(future)
                self.free.append(attempt.worker)
                try:
                    answer = self.workers[attempt.worker].answer(future)
                except Lost as error:
                    self._repeat(attempt, error)
                    continue
                # While the result is looked at, no worker is to wait.
                self._assign()
                yield attempt.done(answer)
            self._assign()
            self._take_over()

    def end(self) -> None:
        """Ends all workers, none of which has a task."""
        for worker in self.workers.values():
            worker.end()

    def kill(self) -> None:
        """Ends all workers at once."""
        for worker in self.workers.values():
            worker.kill()

    def _assign(self) -> None:
        """Gives tasks to the workers that have none."""
        while self.free:
            attempt = self.again.pop() if self.again else next(self.left, None)
            if attempt is None:
                return
            self._give(attempt, self.free.pop(0))

    def _give(self, attempt: Attempt[Task], number: int) -> None:
        attempt.worker = number
        if number not in self.workers:
            self.workers[number] = self.begin(number)
        future = self.workers[number].do(attempt.content, attempt.name)
        self.running[future] = attempt

    def _take_over(self) -> None:
        """Gives free workers the tasks of those that have not begun."""
        if not self.free:
            return
        begun = {x for x, y in self.workers.items() if y.has_begun()}
        waiting = [x for x, y in self.running.items() if y.worker not in begun]
        free = [number for number in self.free if number in begun]
        for future, number in zip(waiting, free, strict=False):
            attempt = self.running.pop(future)
            self.workers.pop(attempt.worker).kill()
            self.free.remove(number)
            self._give(attempt, number)

    def _repeat(self, attempt: Attempt[Task], error: Lost) -> None:
        self.workers.pop(attempt.worker).kill()
        attempt.lost += 1
        if attempt.lost == MOST_LOST:
            raise RuntimeError(
                f"{MOST_LOST} workers were lost at {attempt.name}; the last "
                f"one {error}"
            ) from error
        logger.warning(
            "A worker, lost at %s, is replaced: it %s", attempt.name, error
        )
        self.again.append(attempt)
