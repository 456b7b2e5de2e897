"""Tests of what a benchmark says of the time that is left."""

import pytest

from keras_dml.runs.benchmark.training import _left


@pytest.mark.parametrize(
    ("seconds", "done", "said"),
    [
        (0.0, 0, ""),
        (60.0, 1, ", about 0:05:00 left"),
        (90.0, 3, ", about 0:01:30 left"),
    ],
)
def test_the_rest_takes_as_long_as_what_is_done(seconds, done, said) -> None:
    assert _left(seconds, done, 6) == said
