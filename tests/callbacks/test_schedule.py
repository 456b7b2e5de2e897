"""Tests of `keras_dml.callbacks.schedule`."""

import numpy as np

from keras_dml.callbacks.schedule import is_due


def test_the_end_of_every_period_and_of_the_training() -> None:
    due = [epoch for epoch in range(8) if is_due(epoch, 3, 8)]
    assert due == [2, 5, 7]
    found = is_due(np.arange(8.0), 3, 8)
    np.testing.assert_array_equal(np.flatnonzero(found), due)
    assert all(is_due(epoch, 1, 8) for epoch in range(8))
