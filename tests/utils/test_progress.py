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
    """A fake clock, and a wide terminal."""
    clock = Clock()

    @cache
    def console() -> Console:
        return Console(
            stderr=True, force_terminal=True, width=200, get_time=clock
        )

    monkeypatch.setattr(progress, "_console", console)
    return clock


def test_quick_loops_show_no_bar(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(track(iter(range(5)), 5, "Counting")) == list(range(5))
    assert capsys.readouterr().err == ""


def test_every_item_comes_once_with_a_bar(
    capsys: pytest.CaptureFixture[str],
) -> None:
    items = track(iter(range(5)), 5, "Counting", delay=-1)
    assert list(items) == list(range(5))
    assert "Counting" in capsys.readouterr().err
    assert list(track(iter([]), 0, "Counting")) == []


def test_throughput_counts_from_its_start(
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


def test_nested_bars_are_shown_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with waiting("Loading", True):
        items = track(range(3), 3, "Embedding", delay=-1)
        next(items)
        next(items)
        *_, line, below = capsys.readouterr().err.splitlines()
        assert "Loading" in line and "Embedding" in below
        assert list(items) == [2]


def test_waiting_shows_its_reason_and_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with waiting("Training", True):
        pass
    shown = capsys.readouterr().err
    assert "Training" in shown and "0:00:00" in shown
    with waiting("Training", None):  # Standard error is not a terminal here.
        pass
    assert capsys.readouterr().err == ""
