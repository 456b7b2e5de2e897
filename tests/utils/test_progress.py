"""Tests of the progress bar."""

import pytest

from keras_dml.utils.progress import track


def test_nothing_is_shown_for_what_is_quick(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(track(iter(range(5)), 5, "Counting")) == list(range(5))
    assert capsys.readouterr().err == ""


def test_every_item_comes_once_when_the_bar_appears(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    items = track(iter(range(5)), 5, "Counting", delay=-1)
    assert list(items) == list(range(5))
    assert "Counting" in capsys.readouterr().err
    assert list(track(iter([]), 0, "Counting")) == []
