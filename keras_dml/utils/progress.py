"""Terminal output: progress bars, and text without control characters.

Bars are those of rich, on standard error; the first bar imports it.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, Task

T = TypeVar("T")

_DESCRIPTION = "{task.description}"


@cache
def _console() -> "Console":
    """One console for all bars: a bar within another is shown below it."""
    from rich.console import Console

    return Console(stderr=True)


def _bar(
    *columns: "str | ProgressColumn", progress: bool | None = True
) -> "Progress":
    from rich.progress import Progress

    is_shown = sys.stderr.isatty() if progress is None else progress
    return Progress(
        *columns, console=_console(), transient=True, disable=not is_shown
    )


def track(
    items: Iterable[T], total: int | None, description: str, delay: float = 2.0
) -> Iterator[T]:
    """Yields items, of a number that may be None; a bar appears later."""
    start = time.monotonic()
    rest = iter(items)
    done = 0
    for item in rest:
        yield item
        done += 1
        if time.monotonic() - start > delay:
            break
    if done == total:
        return
    with _bar() as bar:
        yield from bar.track(rest, total, done, description=description)


def with_progress(
    items: Iterable[T],
    total: int | None,
    description: str,
    progress: bool | None,
) -> Iterable[T]:
    """Like `track` if `progress` is set; None shows a bar in a terminal."""
    if progress or (progress is None and sys.stderr.isatty()):
        return track(items, total, description)
    return items


@contextmanager
def throughput(
    total: int, done: int, unit: str, description: str, progress: bool | None
) -> Iterator[Callable[[int], None]]:
    """A bar that counts items and shows their rate, such as images/s.

    `progress` is that of `with_progress`. Call the yielded function with the
    number of items that were done since the last call.
    """
    from rich import progress as rich

    class Rate(rich.ProgressColumn):
        def render(self, task: "Task") -> str:
            return f"{task.speed or 0:,.0f} {unit}/s"

    with _bar(
        _DESCRIPTION,
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        Rate(),
        rich.TimeRemainingColumn(),
        progress=progress,
    ) as bar:
        task = bar.add_task(description, total=total, completed=done)
        yield lambda more: bar.advance(task, more)


@contextmanager
def waiting(description: str, progress: bool | None = None) -> Iterator[None]:
    """A spinner with the time elapsed; `progress` is as of `throughput`."""
    from rich.progress import SpinnerColumn, TimeElapsedColumn

    with _bar(
        SpinnerColumn(), _DESCRIPTION, TimeElapsedColumn(), progress=progress
    ) as bar:
        bar.add_task(description, total=None)
        yield


_CONTROLS = re.compile(
    # C0 except tab and newline; C1; line ends, directions, surrogates.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Escapes control characters for terminal output.

    Names of files, labels and values of recipes may hold sequences that
    clear a screen, change its title or turn the direction of writing.
    """
    return _CONTROLS.sub(lambda x: f"\\u{ord(x[0]):04x}", text)


@contextmanager
def hold_back_stderr() -> Iterator[None]:
    """Holds back output to stderr, and prints it only after an error.

    It is for libraries that write there from C++, which no log setting changes.
    """
    try:
        real_stderr = os.dup(2)
    except OSError:  # There is no stderr.
        yield
        return
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        except BaseException:
            written.seek(0)
            os.write(real_stderr, written.read())
            raise
        finally:
            os.dup2(real_stderr, 2)
            os.close(real_stderr)
