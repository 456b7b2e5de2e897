"""Signals that end a command, even where Python or TensorFlow drops them."""

import contextlib
import signal
import sys
import threading
import time

import pytest
from click.testing import CliRunner

from keras_dml.cli import common, main
from keras_dml.cli.interrupts import interrupts


@pytest.fixture(autouse=True)
def heard():
    """A handler of Ctrl-C: what starts the tests may have it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def wait() -> None:
    """Waits for an interrupt, for ten seconds at most."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts(number):
    before = signal.getsignal(number)
    with (
        pytest.raises(KeyboardInterrupt) as caught,
        interrupts(signal.SIGINT, signal.SIGTERM),
    ):
        signal.raise_signal(number)
    assert caught.value.args == (number,)
    assert signal.getsignal(number) == before


def test_one_that_a_finalizer_drops_is_repeated():
    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), interrupts(signal.SIGINT):
        Interrupted()
        wait()
    assert sys.unraisablehook == hook


def test_one_that_is_swallowed_is_repeated():
    with pytest.raises(KeyboardInterrupt), interrupts(signal.SIGINT):
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        wait()


def test_one_that_is_on_its_way_is_not():
    cleaned = False
    with pytest.raises(KeyboardInterrupt), interrupts(signal.SIGINT):
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            with contextlib.suppress(ValueError):
                raise ValueError("of something else")
            time.sleep(1.2)
            cleaned = True
    assert cleaned


def test_a_second_one_ends_what_the_first_began():
    with pytest.raises(KeyboardInterrupt), interrupts(signal.SIGINT):
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            pytest.fail("It went on.")


def test_other_errors_of_finalizers_are_reported(monkeypatch):
    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    with interrupts(signal.SIGINT):
        Broken()
    assert [x.exc_type for x in reported] == [ValueError]


def test_an_error_that_it_becomes_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt), interrupts(signal.SIGINT):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("replaced by KeyboardInterrupt") from None


def test_other_errors_stay():
    with pytest.raises(RuntimeError, match="own"), interrupts(signal.SIGINT):
        raise RuntimeError("own")


def test_what_is_ignored_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts(signal.SIGINT):
        signal.raise_signal(signal.SIGINT)


def test_other_threads_are_left_alone():
    handlers = []

    def inside() -> None:
        with interrupts(signal.SIGINT):
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


def test_every_command_hears_one_that_a_finalizer_drops(monkeypatch):
    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def dropped() -> None:
        Interrupted()
        wait()
        pytest.fail("It went on.")

    monkeypatch.setattr(common, "import_package", dropped)
    ended = CliRunner().invoke(main, ["evaluate", "run"])
    assert (ended.exit_code, ended.stderr) == (130, "Interrupted.\n")
