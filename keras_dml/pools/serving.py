"""The side of a worker: it starts work, does tasks, tells what went wrong.

A pool talks to its workers in bytes, whether through a pipe or an engine: an
order, which begins a worker; tasks; and what it answers to each. An exception
that cannot be pickled, or a result, is so found where it can be told of.
"""

import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keras_dml.pools.base import Work
from keras_dml.utils.provenance import CODE, versions

_OF_USERS = (ValueError, OSError, ImportError)


@dataclass(frozen=True)
class Answer:
    """What a worker says when it has started, or done a task.

    Attributes:
        result: What the work returned.
        seconds: How long the task took.
    """

    result: Any
    seconds: float


@dataclass(frozen=True)
class Failure:
    """An exception in a worker.

    Attributes:
        kind: Its class, if it is an exception that users can fix.
        message: What it says.
        pickled: The exception itself, where it can be pickled.
        trace: The traceback, as Python prints it.
    """

    kind: type[Exception] | None
    message: str
    pickled: bytes | None
    trace: str

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        kind = next((x for x in _OF_USERS if isinstance(error, x)), None)
        trace = "".join(traceback.format_exception(error))
        return cls(kind, str(error), _pickled(error), trace)

    def error(self, where: str) -> Exception:
        """The exception to raise; `where` is the worker, and its task."""
        if self.kind is None:
            return RuntimeError(f"{where} failed:\n{self.trace}")
        error: Exception = self.kind(self.message)
        if self.pickled is not None:
            try:
                error = pickle.loads(self.pickled)
            except Exception:  # Its class may be known to the worker alone.
                pass
        error.add_note(f"{where} raised it:\n{self.trace}")
        return error


def _pickled(error: Exception) -> bytes | None:
    """An exception in bytes; None if it is not the same afterwards."""
    try:
        pickled = pickle.dumps(error)
        same = str(pickle.loads(pickled)) == str(error)
    except Exception:  # Its arguments can be anything.
        return None
    return pickled if same else None


def order_for(work: Work[Any, Any]) -> bytes:
    """What begins a worker.

    Raises:
        ValueError: If workers cannot be given the work.
    """
    kind = type(work)
    if kind.__module__ == "__main__":
        raise ValueError(
            "`work` of a pool must be of a class that workers can import. "
            f"Received: {kind.__qualname__}, defined in the running script. "
            "Move the class into a module, and import it from there."
        )
    return pickle.dumps((versions(), to_bytes("`work` of a pool", work)))


def to_bytes(name: str, value: Any) -> bytes:
    """Pickles what workers are given.

    Raises:
        ValueError: If it cannot be pickled.
    """
    try:
        return pickle.dumps(value)
    except Exception as error:  # Of any kind, PicklingError the rarest.
        raise ValueError(
            f"{name} must be an object that can be pickled. Received: "
            f"{type(value).__name__}, for which Python reports: {error}"
        ) from error


class Server:
    """A worker's side of a pool."""

    def __init__(self, order: bytes) -> None:
        self._order = order
        self._do: Callable[[Any], Any] | None = None

    def start(self) -> bytes:
        """Starts the work; returns an `Answer` or a `Failure`, pickled."""
        return _answered(self._start)

    def do(self, task: bytes) -> bytes:
        """Does a task; returns an `Answer` or a `Failure`, pickled."""
        return _answered(lambda: self._started(pickle.loads(task)))

    def _start(self) -> None:
        theirs, work = pickle.loads(self._order)
        # First: another version may not know the class of the work.
        _check_versions(theirs, versions())
        self._do = pickle.loads(work).start()

    def _started(self, task: Any) -> Any:
        if self._do is None:
            raise RuntimeError("A worker was given a task before it started.")
        return self._do(task)


def _answered(do: Callable[[], Any]) -> bytes:
    began = time.perf_counter()
    try:
        result = do()
        return pickle.dumps(Answer(result, time.perf_counter() - began))
    except Exception as error:  # Whatever it is, it is told.
        return pickle.dumps(Failure.of(error))


def _check_versions(theirs: dict[str, str], ours: dict[str, str]) -> None:
    """Raises `ValueError` unless a worker is the same as its driver."""
    names = dict.fromkeys([*theirs, *ours])
    different = [
        f"{'code of keras-dml' if name == CODE else name}: "
        f"{theirs.get(name)}, {ours.get(name)}"
        for name in names
        if theirs.get(name) != ours.get(name)
    ]
    if different:
        raise ValueError(
            "Workers must have the same versions as the process that gives "
            "them tasks. Received, from a worker and this process, different "
            f"ones: {'; '.join(different)}. Install the same versions on all "
            "machines, and do not change the code during a run."
        )
