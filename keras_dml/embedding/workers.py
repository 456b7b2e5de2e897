"""Pools of workers: work, its tasks, and who does which.

Work is an object that can be pickled. Each worker of a pool starts it once, for
instance to load a model, and then receives tasks, one at a time. Tasks are
independent: each is done completely or not at all, in any order and by any
worker. If a worker dies, its task is given to another one. Therefore, the
result of a task, such as a file, must not depend on the worker, and must be
written atomically.
"""

import abc
import contextlib
import logging
import os
import pickle
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

logger = logging.getLogger(__name__)

Task = TypeVar("Task")
Result = TypeVar("Result")

MOST_LOST = 3
"""Workers that may die at one task."""

_OF_USERS = (ValueError, OSError, ImportError)


class Work(abc.ABC, Generic[Task, Result]):
    """The work of a pool; it can be pickled."""

    @abc.abstractmethod
    def start(self) -> Callable[[Task], Result]:
        """Returns a function that does one task; called once by each worker.

        Raises:
            ValueError: Or OSError or ImportError, for errors that the user can
                fix. They end the run of the pool and are raised there, as are
                these errors in a task.
        """

    def called(self, task: Task) -> str:
        """The name of a task in messages, such as "shard 7"."""
        return str(task)


class Pool(abc.ABC):
    """Runs tasks in this process, in other processes, or on an engine."""

    @abc.abstractmethod
    def run(
        self, work: Work[Task, Result], tasks: Iterable[Task]
    ) -> Generator[tuple[Task, Result]]:
        """Runs all tasks; yields each with its result, in any order.

        Tasks are taken from the iterable when a worker is free. Closing the
        generator ends all workers.

        Raises:
            ValueError: Or OSError or ImportError, as raised by the work.
            RuntimeError: If workers repeatedly die. Other errors of tasks in
                other processes are also raised as RuntimeError, with the
                traceback of that process; errors in this process are raised
                unchanged.
        """


class InProcess(Pool):
    """Runs tasks in this process, one after another."""

    def run(
        self, work: Work[Task, Result], tasks: Iterable[Task]
    ) -> Generator[tuple[Task, Result]]:
        do = work.start()
        for task in tasks:
            yield task, do(task)


class InWorker:
    """The work of a pool in one of its workers.

    Results and errors are pickled here and not by what transports them, since
    errors cannot always be.

    Args:
        work: The work, a pickle.
    """

    def __init__(self, work: bytes) -> None:
        self._work = work
        self._do: Callable[[Any], Any]

    def do(self, task: bytes | None, name: str) -> bytes:
        """A pickle of the result of a task, or of an exception.

        Args:
            task: The task, a pickle; None starts the work.
            name: Its name in messages.
        """
        try:
            if task is None:
                self._do = pickle.loads(self._work).start()
                return pickle.dumps(None)
            return pickle.dumps(self._do(pickle.loads(task)))
        except (Exception, SystemExit) as error:
            return pickle.dumps(_for_users(error, name))


def _for_users(error: BaseException, name: str) -> Exception:
    """An exception that can be pickled and has the traceback of `error`."""
    trace = "".join(traceback.format_exception(error))
    for kind in _OF_USERS:
        if isinstance(error, kind):
            found: Exception = kind(str(error))
            found.add_note(f"A worker, at {name}, raised it:\n{trace}")
            return found
    return RuntimeError(f"A worker, at {name}, failed:\n{trace}")


class Lost(Exception):
    """A worker died; the message is the rest of a sentence about it."""


class Worker(abc.ABC):
    """A worker, as a pool sees it.

    Attributes:
        number: Its number in the pool, also that of one that replaces it.
    """

    number: int

    @abc.abstractmethod
    def do(self, task: bytes | None, name: str) -> Future[Any]:
        """Has the worker do a task, as `InWorker.do` does."""

    @abc.abstractmethod
    def answer(self, future: Future[Any]) -> bytes:
        """The answer to a task that is done; `Lost` if the worker died."""

    @abc.abstractmethod
    def end(self) -> None:
        """Ends the worker, and its task; it may be dead already."""


Begin: TypeAlias = Callable[[int], Worker]
"""Begins the worker of a number."""


class WorkerPool(Pool):
    """A pool of workers that may die."""

    @abc.abstractmethod
    def _open(
        self, work: bytes, undo: contextlib.ExitStack
    ) -> tuple[Begin, int]:
        """How to begin a worker of a run, and how many there are at most.

        The work is a pickle; `undo` is done when no worker is left.
        """

    def run(
        self, work: Work[Task, Result], tasks: Iterable[Task]
    ) -> Generator[tuple[Task, Result]]:
        with contextlib.ExitStack() as undo:
            pickled = _pickled("the work of a pool", work)
            run = _Run(work, tasks, *self._open(pickled, undo))
            undo.callback(run.end)
            run.begin()
            yield from run.done()


def _pickled(name: str, value: Any) -> bytes:
    # Unlike `pickle`, it takes what a script defines.
    from joblib.externals.loky.cloudpickle_wrapper import dumps

    try:
        pickled: bytes = dumps(value)
    except Exception as error:  # Of any kind, PicklingError the rarest.
        raise ValueError(
            f"What workers receive must be picklable. Received: {name}, for "
            f"which Python reports: {error}"
        ) from error
    return pickled


@dataclass(eq=False)
class _Attempt(Generic[Task]):
    """A task, or the start of a worker.

    Attributes:
        name: Its name in messages.
        task: The task.
        pickled: Its pickle; None to start a worker.
        lost: How many workers died at it.
    """

    name: str
    task: Task
    pickled: bytes | None
    lost: int = 0


class _Run(Generic[Task, Result]):
    """A run: its workers, and the tasks that they do.

    A worker is given a task when it has started: on a cluster, it may wait for
    a place forever.
    """

    def __init__(
        self,
        work: Work[Task, Result],
        tasks: Iterable[Task],
        begin: Begin,
        count: int,
    ) -> None:
        self._work, self._left = work, iter(tasks)
        self._begin, self._count = begin, count
        self._start: _Attempt[Any] = _Attempt("its start", None, None)
        self._waiting: deque[_Attempt[Task]] = deque()
        self._workers: dict[int, Worker] = {}
        self._idle: list[Worker] = []
        self._doing: dict[Future[Any], tuple[Worker, _Attempt[Task]]] = {}

    def begin(self) -> None:
        """Begins as many workers as have tasks."""
        for number, task in enumerate(islice(self._left, self._count)):
            self._waiting.append(self._attempt(task))
            self._add(number)

    def done(self) -> Generator[tuple[Task, Result]]:
        """Tasks, with their results."""
        while self._waiting or any(
            attempt is not self._start for _, attempt in self._doing.values()
        ):
            ready, _ = wait(self._doing, return_when=FIRST_COMPLETED)
            for future in ready:
                worker, attempt = self._doing.pop(future)
                try:
                    found = pickle.loads(worker.answer(future))
                except Lost as error:
                    self._replace(worker, attempt, error)
                    continue
                if isinstance(found, Exception):
                    raise found
                self._next(worker)
                if attempt is self._start:
                    attempt.lost = 0
                else:
                    yield attempt.task, found

    def end(self) -> None:
        """Ends all workers."""
        for worker in self._workers.values():
            worker.end()

    def _add(self, number: int) -> None:
        self._workers[number] = worker = self._begin(number)
        self._give(worker, self._start)

    def _attempt(self, task: Task) -> _Attempt[Task]:
        name = self._work.called(task)
        return _Attempt(name, task, _pickled(name, task))

    def _give(self, worker: Worker, attempt: _Attempt[Task]) -> None:
        future = worker.do(attempt.pickled, attempt.name)
        self._doing[future] = worker, attempt

    def _next(self, worker: Worker) -> None:
        """Gives a worker the next task, if there is one."""
        if self._waiting:
            self._give(worker, self._waiting.popleft())
            return
        for task in islice(self._left, 1):
            self._give(worker, self._attempt(task))
            return
        self._idle.append(worker)

    def _replace(
        self, worker: Worker, attempt: _Attempt[Task], error: Lost
    ) -> None:
        worker.end()
        attempt.lost += 1
        if attempt.lost == MOST_LOST:
            raise RuntimeError(
                f"{MOST_LOST} workers were lost at {attempt.name}; the last "
                f"one {error}"
            ) from error
        logger.warning(
            "A worker, lost at %s, is replaced: it %s", attempt.name, error
        )
        if attempt is not self._start:
            self._waiting.appendleft(attempt)
        if self._idle and self._waiting:
            self._next(self._idle.pop())
        else:
            self._add(worker.number)


def sharing(threads: int) -> dict[str, str]:
    """Variables of processes of so many threads; what is set already stays."""
    defaults = {
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": str(threads),
        "TF_NUM_INTRAOP_THREADS": str(threads),
        # Else the first of several takes all memory of a GPU.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    return {name: os.environ.get(name, x) for name, x in defaults.items()}
