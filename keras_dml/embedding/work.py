"""The interface of pools: work, its tasks, and their results.

Work is an object that can be pickled. Each worker of a pool starts it once, for
instance to load a model, and then receives tasks, one at a time. Tasks are
independent: each is done completely or not at all, in any order and by any
worker. If a worker dies, its task is given to another one. Therefore, the
result of a task, such as a file, must not depend on the worker, and must be
written atomically.
"""

import abc
from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


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
