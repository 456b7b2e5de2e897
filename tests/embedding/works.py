"""Work for pools that tests watch, disturb and end."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_dml.embedding.workers import Work
from tests.embedding.processes import wait_for


class Squares(Work[int, int]):
    """Squares numbers; refuses negative ones."""

    def start(self) -> Callable[[int], int]:
        return self._square

    def _square(self, number: int) -> int:
        if number < 0:
            raise ValueError(f"{number} is negative")
        return number**2

    def called(self, task: int) -> str:
        return f"number {task}"


class Slow(Squares):
    """Squares slowly, and writes down who begins, and with what, in a folder.

    Args:
        folder: Where "PID" files are made.
        seconds: How long each task takes.
        together: Number of processes that must have begun before a task ends,
            so that none does all tasks while another still starts.
    """

    def __init__(
        self, folder: Path, seconds: float = 0.05, together: int = 1
    ) -> None:
        self.folder = folder
        self.seconds = seconds
        self.together = together

    def _square(self, number: int) -> int:
        with (self.folder / str(os.getpid())).open("a") as file:
            file.write(f"{number}\n")
        time.sleep(self.seconds)
        wait_for(lambda: len(os.listdir(self.folder)) >= self.together, 300)
        return super()._square(number)


class Dies(Squares):
    """Is killed by number 3, or at its start, as often as is asked for.

    Args:
        folder: Where each death leaves a file.
        times: How many workers die.
        at_start: Whether they die when they start.
        number: The signal that kills them; 0 exits with status 3.
    """

    def __init__(
        self,
        folder: Path,
        times: int,
        at_start: bool = False,
        number: int = signal.SIGKILL,
    ) -> None:
        self.folder = folder
        self.times = times
        self.at_start = at_start
        self.number = number

    def start(self) -> Callable[[int], int]:
        if self.at_start:
            self._die()
        return super().start()

    def _square(self, number: int) -> int:
        if number == 3 and not self.at_start:
            self._die()
        return super()._square(number)

    def _die(self) -> None:
        if len(list(self.folder.iterdir())) < self.times:
            (self.folder / str(os.getpid())).touch()
            print("its last words", flush=True)
            if not self.number:
                os._exit(3)
            os.kill(os.getpid(), self.number)


class Raises(Work[Any, Any]):
    """Raises what its task says: an exception, or its name."""

    def start(self) -> Callable[[Any], Any]:
        return self._raise

    def _raise(self, task: Any) -> Any:
        if isinstance(task, Exception):
            raise task
        if task == "unpicklable":
            raise Unpicklable()
        if task == "unpicklable OSError":
            raise UnpicklableOSError()
        if task == "unpicklable result":
            return lambda: None
        if task == "prints":
            print("printed", flush=True)
            os.write(1, b"written\n" * 1000)
            return task
        if task == "exits":
            sys.exit(3)
        if task == "threads":
            return os.environ["TF_NUM_INTRAOP_THREADS"]
        raise AssertionError(task)

    def called(self, task: Any) -> str:
        return f"task {task!r}"


class StartRaises(Squares):
    """Cannot start."""

    def start(self) -> Callable[[int], int]:
        raise ImportError("no module that squares")


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("cannot be pickled")
        self.what = lambda: None


class UnpicklableOSError(OSError):
    def __init__(self) -> None:
        super().__init__("the disk is full")
        self.what = lambda: None
