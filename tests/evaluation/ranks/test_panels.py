"""Panels: the threads that search, and what messages call a task."""

import pytest

from keras_dml.evaluation.ranks import panels


@pytest.mark.parametrize(
    "share, cores, expected",
    [("", 4, 4), ("1", 4, 1), ("3", 4, 3), ("8", 4, 4), ("0", 4, 1),
     ("two", 4, 4), ("", 99, panels.MOST_THREADS)],
)  # fmt: skip
def test_threads_are_the_share_of_the_cores(
    monkeypatch, share, cores, expected
):
    monkeypatch.setenv("OMP_NUM_THREADS", share)
    monkeypatch.setattr(panels, "usable_cores", lambda: cores)
    assert panels._threads() == expected


def test_a_task_is_called_by_its_queries():
    search = panels.PanelSearch.__new__(panels.PanelSearch)
    assert search.called(slice(50, 100)) == "queries 50 to 99"
