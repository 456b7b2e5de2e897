"""Signals that end a command, heard wherever they arrive."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_AGAIN = 1.0
"""Seconds after which an interrupt is repeated that has not arrived."""


@contextmanager
def interrupts(*numbers: signal.Signals) -> Iterator[None]:
    """Makes signals raise `KeyboardInterrupt`, and makes sure that it arrives.

    Python drops what is raised in a finalizer, and TensorFlow turns what
    interrupts the tracing of a function into errors of its own: of 200
    interrupts of `embed_shards`, 6 were lost in one of these ways. So an
    interrupt is repeated until it arrives here, and any error after a signal
    counts as one. What runs inside must let it pass, or be done a second later.

    Does nothing outside the main thread, which is where signals arrive, and
    leaves ignored signals ignored, as a shell does for jobs in the background.

    Args:
        numbers: The signals.

    Raises:
        KeyboardInterrupt: After a signal, with its number.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        received.append(number)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
        raise KeyboardInterrupt(number)

    def repeat(*_: Any) -> None:
        if not _is_on_its_way():
            raise KeyboardInterrupt(received[-1])

    def report(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            hook(dropped)

    hook, sys.unraisablehook = sys.unraisablehook, report
    handlers = {x: interrupt for x in numbers if not _is_ignored(x)}
    before = {
        number: signal.signal(number, handler)
        for number, handler in {**handlers, signal.SIGALRM: repeat}.items()
    }
    try:
        yield
    except Exception as error:
        if not received:
            raise
        raise KeyboardInterrupt(received[-1]) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) == signal.SIG_IGN


def _is_on_its_way() -> bool:
    """Whether an interrupt is being handled, as by a `finally` clause."""
    error = sys.exception()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
