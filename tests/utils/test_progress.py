"""Tests of the progress bar."""

from functools import cache

import pytest
from rich.console import Console

from keras_dml.utils import progress
from keras_dml.utils.progress import throughput, track, waiting


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That of a wide terminal."""
    clock = Clock()

    @cache
    def console() -> Console:
        return Console(
            stderr=True, force_terminal=True, width=200, get_time=clock
        )

    monkeypatch.setattr(progress, "_console", console)
    return clock


def test_nothing_is_shown_for_what_is_quick(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(track(iter(range(5)), 5, "Counting")) == list(range(5))
    assert capsys.readouterr().err == ""


def test_every_item_comes_once_when_the_bar_appears(
    capsys: pytest.CaptureFixture[str],
) -> None:
    items = track(iter(range(5)), 5, "Counting", delay=-1)
    assert list(items) == list(range(5))
    assert "Counting" in capsys.readouterr().err
    assert list(track(iter([]), 0, "Counting")) == []


def test_throughput_counts_from_where_it_was(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with throughput(50, 10, "images", "Embedding", True) as count:
        count(5)
        clock.now += 2.0
        count(10)
    shown = capsys.readouterr().err
    assert "25/50" in shown and "5 images/s" in shown
    with throughput(50, 10, "images", "Embedding", False) as count:
        count(40)
    assert capsys.readouterr().err == ""


def test_one_within_another_is_shown_with_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with waiting("Loading", True):
        items = track(range(3), 3, "Embedding", delay=-1)
        next(items)
        next(items)
        *_, line, below = capsys.readouterr().err.splitlines()
        assert "Loading" in line and "Embedding" in below
        assert list(items) == [2]


def test_waiting_says_what_for_and_since_when(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with waiting("Training", True):
        pass
    shown = capsys.readouterr().err
    assert "Training" in shown and "0:00:00" in shown
    with waiting("Training", None):  # This is no terminal.
        pass
    assert capsys.readouterr().err == ""
