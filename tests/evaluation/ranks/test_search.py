"""Panels: the threads that search, and what messages call a task."""

import pytest

from keras_dml.evaluation.ranks import search


@pytest.mark.parametrize(
    "share, cores, expected",
    [("", 4, 4), ("1", 4, 1), ("3", 4, 3), ("8", 4, 4), ("0", 4, 1),
     ("two", 4, 4), ("", 99, search.MOST_THREADS)],
)  # fmt: skip
def test_threads_are_the_share_of_the_cores(
    monkeypatch, share, cores, expected
):
    monkeypatch.setenv("OMP_NUM_THREADS", share)
    monkeypatch.setattr(search, "usable_cores", lambda: cores)
    assert search._threads() == expected


def test_a_task_is_called_by_its_queries():
    found = search.PanelSearch.__new__(search.PanelSearch)
    assert found.called(slice(50, 100)) == "queries 50 to 99"
