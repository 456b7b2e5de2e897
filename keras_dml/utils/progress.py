"""Bars of rich on standard error, for what takes long; they go at the end."""

import datetime
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

T = TypeVar("T")

_DESCRIPTION = TextColumn("{task.description}")


@cache
def _console() -> Console:
    """One for all bars: those within another are shown below it."""
    return Console(stderr=True)


def _bar(*columns: ProgressColumn, progress: bool | None = True) -> Progress:
    shown = sys.stderr.isatty() if progress is None else progress
    return Progress(
        *columns, console=_console(), transient=True, disable=not shown
    )


def track(
    items: Iterable[T], total: int | None, description: str, delay: float = 2.0
) -> Iterator[T]:
    """Yields items; a bar appears after a delay.

    Their number may be unknown, None.
    """
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


def tracked(
    items: Iterable[T],
    total: int | None,
    description: str,
    progress: bool | None,
) -> Iterable[T]:
    """As `track` if `progress` is wanted; None shows it in a terminal."""
    if progress or (progress is None and sys.stderr.isatty()):
        return track(items, total, description)
    return items


@contextmanager
def throughput(
    total: int, done: int, unit: str, description: str, progress: bool | None
) -> Iterator[Callable[[int], None]]:
    """A bar that counts, and says how many "images", or so, a second.

    It is shown where `progress` is set, or is None in a terminal; `done` were
    done before.

    Yields:
        What is told how many more were done.
    """

    class Rate(ProgressColumn):
        def render(self, task: Task) -> str:
            return f"{task.speed or 0:,.0f} {unit}/s"

    with _bar(
        _DESCRIPTION,
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        progress=progress,
    ) as bar:
        task = bar.add_task(description, total=total, completed=done)
        yield lambda more: bar.advance(task, more)


@contextmanager
def waiting(description: str, progress: bool | None = None) -> Iterator[None]:
    """Says what is done, and since when; `progress` is as of `throughput`."""
    with _bar(
        SpinnerColumn(), _DESCRIPTION, TimeElapsedColumn(), progress=progress
    ) as bar:
        bar.add_task(description, total=None)
        yield


def time_left(seconds: float, done: int, total: int) -> str:
    """How long the rest takes, if it takes as long as what is done.

    Returns:
        The end of a line, such as ", about 0:05:00 left"; nothing before
        anything is done.
    """
    if not done:
        return ""
    left = datetime.timedelta(seconds=round(seconds / done * (total - done)))
    return f", about {left} left"
