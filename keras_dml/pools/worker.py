"""The tasks of a pool, and what does them in a worker.

Work, tasks and answers are pickled here and not by what transports them, so
that one that cannot be pickled is named.
"""

import functools
import pickle
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from keras_dml.pools.base import Done, Task, Work
from keras_dml.utils.provenance import CODE, versions

_OF_USERS = (ValueError, OSError, ImportError)


@dataclass
class Attempt(Generic[Task]):
    """A task in a pool.

    Attributes:
        task: The task.
        content: Its pickle.
        name: Its name in messages.
        lost: How many workers died at it.
        worker: The number of the worker that does it.
    """

    task: Task
    content: bytes
    name: str
    lost: int = 0
    worker: int = 0

    def done(self, answer: bytes) -> Done[Task, Any]:
        """The task with its result, or the exception that a worker raised."""
        found = pickle.loads(answer)
        if isinstance(found, Exception):
            raise found
        result, seconds = found
        return Done(self.task, result, seconds, self.worker)


def attempts(
    work: Work[Task, Any], tasks: Iterable[Task]
) -> Iterator[Attempt[Task]]:
    """The tasks of a work; ValueError if one cannot be pickled."""
    for task in tasks:
        name = work.called(task)
        content = _pickled(f"{name}, a task of a pool,", task)
        yield Attempt(task, content, name)


def pickled_work(work: Work[Any, Any]) -> bytes:
    """The work for workers, and the versions that they must have.

    Raises:
        ValueError: If workers cannot import or unpickle it.
    """
    kind = type(work)
    if kind.__module__ == "__main__":
        raise ValueError(
            "`work` of a pool must be of a class that workers can import. "
            f"Received: {kind.__qualname__}, defined in the running script. "
            "Move the class into a module, and import it from there."
        )
    return pickle.dumps((versions(), _pickled("`work` of a pool", work)))


def _pickled(name: str, value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:  # Of any kind, PicklingError the rarest.
        raise ValueError(
            f"{name} must be an object that can be pickled. Received: "
            f"{type(value).__name__}, for which Python reports: {error}"
        ) from error


class Worker:
    """The work of a pool in one of its workers.

    Args:
        work: The work, a result of `pickled_work`; it starts with a task.
    """

    def __init__(self, work: bytes) -> None:
        self._work = work
        self._do: Callable[[Any], Any] | None = None

    def do(self, task: bytes, name: str) -> bytes:
        """Does a task.

        Args:
            task: The task, a pickle.
            name: Its name in messages.

        Returns:
            A pickle of the result and the seconds that it took, or of an
            exception.
        """
        try:
            if self._do is None:
                self._do = _started(self._work)
            began = time.perf_counter()
            result = self._do(pickle.loads(task))
            return pickle.dumps((result, time.perf_counter() - began))
        except (Exception, SystemExit) as error:
            return pickle.dumps(_for_users(error, name))


def _started(content: bytes) -> Callable[[Any], Any]:
    expected, work = pickle.loads(content)
    # First: another version may not know the class of the work.
    _check_versions(versions(), expected)
    do: Callable[[Any], Any] = pickle.loads(work).start()
    return do


@functools.cache
def _local(work: Path) -> Worker:
    return Worker(work.read_bytes())


def do_local(name: str, work: Path, task: Path, answer: Path) -> None:
    """Does a task in this process; work, task and answer are files."""
    answer.write_bytes(_local(work).do(task.read_bytes(), name))


def _for_users(error: BaseException, name: str) -> Exception:
    """An exception that can be pickled and has the traceback of `error`."""
    trace = "".join(traceback.format_exception(error))
    kind = next((x for x in _OF_USERS if isinstance(error, x)), None)
    if kind is None:
        return RuntimeError(f"A worker, at {name}, failed:\n{trace}")
    found: Exception = kind(str(error))
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:  # Its arguments can be anything.
        copy = None
    if str(copy) == str(error):
        found = copy
    found.add_note(f"A worker, at {name}, raised it:\n{trace}")
    return found


def _check_versions(found: dict[str, str], expected: dict[str, str]) -> None:
    """Raises ValueError unless a worker has the versions of its pool."""
    different = [
        f"{'code of keras-dml' if name == CODE else name}: "
        f"{found.get(name)}, {expected.get(name)}"
        for name in dict.fromkeys([*expected, *found])
        if found.get(name) != expected.get(name)
    ]
    if different:
        raise ValueError(
            "Workers must have the same versions as the process that gives "
            "them tasks. Received, from a worker and this process, different "
            f"ones: {'; '.join(different)}. Install the same versions on all "
            "machines, and do not change the code during a run."
        )
