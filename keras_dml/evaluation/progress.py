"""Whether to show a progress bar."""

import sys
from collections.abc import Iterable
from typing import TypeVar

from keras_dml.data.progress import track

T = TypeVar("T")


def tracked(
    items: Iterable[T], total: int, description: str, progress: bool | None
) -> Iterable[T]:
    """Items, with a progress bar after a moment if progress is wanted.

    Args:
        items: What to go through.
        total: Number of items.
        description: What is being done.
        progress: Whether to show it; None shows it in a terminal.
    """
    if progress is None:
        progress = sys.stderr.isatty()
    return track(items, total, description) if progress else items
