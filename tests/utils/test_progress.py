"""Tests of the progress bar."""

import itertools
import re
import time

import pytest

from keras_dml.utils.progress import (
    epochs,
    stages,
    throughput,
    time_left,
    track,
    waiting,
)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


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
    capsys: pytest.CaptureFixture[str],
) -> None:
    with throughput(50, 10, "images", "Embedding", True) as count:
        count(15)
    shown = capsys.readouterr().err
    assert "25/50" in shown and "images/s" in shown
    with throughput(50, 10, "images", "Embedding", False) as count:
        count(40)
    assert capsys.readouterr().err == ""


def test_stages_say_what_is_done_and_how_long_the_rest_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with stages({"Loading": 10.0, "Writing": 30.0}, True) as begin:
        begin("Loading")
        now += 20.0  # Twice as long as usual.
        begin("Writing")
    shown = capsys.readouterr().err
    left = re.findall(r"(Loading|Writing).*?about (\d+) s left", shown)
    assert left[0] == ("Loading", "40")
    assert left[-1] == ("Writing", "60")
    with stages({"Loading": 10.0}, False) as begin:
        begin("Loading")
    assert capsys.readouterr().err == ""


def test_stages_admit_that_they_take_longer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with stages({"Loading": 10.0}, True) as begin:
        now += 11.0
        begin("Loading")
    assert "longer than usual" in capsys.readouterr().err


def test_one_within_another_takes_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stages({"Loading": 10.0, "Writing": 10.0}, True) as begin:
        assert len(list(track(range(3), 3, "Embedding", delay=-1))) == 3
        begin("Writing")
    shown = re.findall("Loading|Embedding|Writing", capsys.readouterr().err)
    in_turn = [name for name, _ in itertools.groupby(shown)]
    assert in_turn == ["Loading", "Embedding", "Loading", "Writing"]


def test_epochs_that_another_process_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, ended = 100.0, 2  # It goes on.
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with epochs(8, lambda: ended, "seed 0", True):
        assert "epoch 3 of 8" in capsys.readouterr().err
        now, ended = now + 30.0, 4
    assert "epoch 5 of 8, about 0:01:00 left" in capsys.readouterr().err
    with epochs(8, lambda: ended, "seed 0", False):
        pass
    assert capsys.readouterr().err == ""


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


@pytest.mark.parametrize(
    ("seconds", "done", "said"),
    [
        (0.0, 0, ""),
        (60.0, 1, ", about 0:05:00 left"),
        (90.0, 3, ", about 0:01:30 left"),
    ],
)
def test_the_rest_takes_as_long_as_what_is_done(seconds, done, said) -> None:
    assert time_left(seconds, done, 6) == said
