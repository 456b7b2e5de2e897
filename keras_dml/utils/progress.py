"""Progress of what takes long."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


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
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
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
    if progress is None:
        progress = sys.stderr.isatty()
    return track(items, total, description) if progress else items
