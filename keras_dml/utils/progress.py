"""Progress of what takes long."""

import contextlib
import datetime
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_open: list[Any] = []
"""Bars, each within the one before it; the last one is shown."""


def track(
    items: Iterable[T], total: int | None, description: str, delay: float = 2.0
) -> Iterator[T]:
    """Yields items; a bar on standard error appears after a delay.

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
    with _bar() as progress:
        task = progress.add_task(description, total=total, completed=done)
        for item in rest:
            yield item
            progress.advance(task)


def tracked(
    items: Iterable[T],
    total: int | None,
    description: str,
    progress: bool | None,
) -> Iterable[T]:
    """As `track` if `progress` is wanted; None shows it in a terminal."""
    if not _is_wanted(progress):
        return items
    return track(items, total, description)


@contextlib.contextmanager
def throughput(
    total: int, done: int, unit: str, description: str, progress: bool | None
) -> Iterator[Callable[[int], None]]:
    """A bar on standard error that counts, and says how many a second.

    Args:
        total: How many there are.
        done: How many of them were done before.
        unit: What they are, as "images".
        description: What is done to them.
        progress: Whether it is wanted; None shows it in a terminal.

    Yields:
        What is told how many more were done.
    """
    if not _is_wanted(progress):
        yield lambda more: None
        return
    from rich import progress as bars

    start, before = time.monotonic(), done
    with _bar(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[rate]}"),
        bars.TimeRemainingColumn(),
    ) as bar:
        task = bar.add_task(description, total=total, completed=done, rate="")

        def count(more: int) -> None:
            nonlocal done
            done += more
            rate = (done - before) / max(time.monotonic() - start, 1e-3)
            bar.update(task, completed=done, rate=f"{rate:,.0f} {unit}/s")

        yield count


@contextlib.contextmanager
def stages(
    seconds: Mapping[str, float], progress: bool | None = None
) -> Iterator[Callable[[str], None]]:
    """A bar on standard error over stages of unequal length.

    Args:
        seconds: How long each stage usually takes, by what is done in it.
            Once a stage has ended, the time that is left is scaled by how
            long the ended ones really took.
        progress: Whether it is wanted; None shows it in a terminal.

    Yields:
        What is told which stage begins.
    """
    if not _is_wanted(progress):
        yield lambda stage: None
        return
    from rich import progress as bars

    names, start = list(seconds), time.monotonic()
    expected = usual = sum(seconds.values())

    class TimeLeft(bars.ProgressColumn):
        def render(self, task: bars.Task) -> str:
            left = expected - (time.monotonic() - start)
            if left <= 0:
                return "takes longer than usual"
            return f"about {left:,.0f} s left"

    with _bar(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        TimeLeft(),
    ) as bar:
        task = bar.add_task(names[0], total=usual)

        def begin(stage: str) -> None:
            nonlocal expected
            done = sum(seconds[x] for x in names[: names.index(stage)])
            if done:
                pace = (time.monotonic() - start) / done
                expected = pace * usual
            bar.update(task, completed=done, description=stage)

        yield begin


@contextlib.contextmanager
def epochs(
    total: int,
    done: Callable[[], int],
    description: str,
    progress: bool | None = None,
) -> Iterator[None]:
    """A bar on standard error over a training that does not show itself.

    Args:
        total: Number of its epochs.
        done: Tells how many have ended; it is asked every second.
        description: What is trained.
        progress: Whether it is wanted; None shows it in a terminal.
    """
    if not _is_wanted(progress):
        yield
        return
    from rich import progress as bars

    start, before = time.monotonic(), done()

    class Epochs(bars.ProgressColumn):
        max_refresh = 1.0

        def render(self, task: bars.Task) -> str:
            ended = done()
            task.completed = ended
            passed = time.monotonic() - start
            left = time_left(passed, ended - before, total - before)
            return f"epoch {min(ended + 1, total)} of {total}{left}"

    with _bar(
        bars.TextColumn("{task.description}"),
        Epochs(),
        bars.BarColumn(20),
        bars.TimeElapsedColumn(),
    ) as bar:
        bar.add_task(description, total=total)
        yield


@contextlib.contextmanager
def waiting(description: str, progress: bool | None = None) -> Iterator[None]:
    """Says on standard error what is done, and since when.

    For what tells nothing before its end. `progress` is as of `throughput`.
    """
    if not _is_wanted(progress):
        yield
        return
    from rich import progress as bars

    with _bar(
        bars.SpinnerColumn(),
        bars.TextColumn("{task.description}"),
        bars.TimeElapsedColumn(),
    ) as bar:
        bar.add_task(description, total=None)
        yield


def _is_wanted(progress: bool | None) -> bool:
    return sys.stderr.isatty() if progress is None else progress


@contextlib.contextmanager
def _bar(*columns: Any) -> Iterator[Any]:
    """A bar of rich on standard error, which is gone at the end.

    One within another takes its place meanwhile: two would overwrite each
    other.
    """
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    outer = _open[-1] if _open else None
    if outer is not None:
        outer.stop()
    _open.append(bar)
    try:
        with bar:
            yield bar
    finally:
        _open.remove(bar)
        if outer is not None and outer in _open:
            outer.start()


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
