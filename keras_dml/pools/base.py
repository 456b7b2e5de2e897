"""What pools have in common: work, its tasks, and what is done of it.

A piece of work is a class that can be pickled. Each worker of a pool starts
it once, for instance to load a model, and is then given tasks, one at a time.
Tasks do not know each other: each is done whole or not at all, in any order
and by any worker. Where a worker dies, its task is given to another one. So
what a task leaves behind, such as a file, must be the same whoever does it,
and be there whole or not at all.
"""

import abc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class Work(abc.ABC, Generic[Task, Result]):
    """What workers do; it can be pickled."""

    @abc.abstractmethod
    def start(self) -> Callable[[Task], Result]:
        """What does one task; called once by each worker.

        Raises:
            ValueError: Or OSError, ImportError: what a user can mend. It ends
                the run of the pool, and is raised there, as are such errors
                of a task.
        """

    def called(self, task: Task) -> str:
        """What messages call a task, as "shard 7"."""
        return str(task)


@dataclass(frozen=True)
class Done(Generic[Task, Result]):
    """A task that was done.

    Attributes:
        task: The task.
        result: What the work returned.
        seconds: How long the worker was at it.
        worker: The number of the worker, from 0.
    """

    task: Task
    result: Result
    seconds: float
    worker: int = 0


class Pool(abc.ABC):
    """Where tasks are done: in this process, in others, on an engine."""

    @abc.abstractmethod
    def run(
        self, work: Work[Task, Result], tasks: Iterable[Task]
    ) -> Iterator[Done[Task, Result]]:
        """Does all tasks; yields each when it is done, in any order.

        Tasks are taken from the iterable when a worker is free for them.
        Whoever closes the iterator ends all workers.

        Raises:
            ValueError: Or OSError, ImportError: as the work raised it.
            RuntimeError: If workers die or hang again and again. What else a
                task raises in another process is one too, with the traceback
                of that process; in this one it is raised as it is.
        """
