"""Ranks as small arrays: the same ranks, in fewer bytes."""

import numpy as np
import pytest

from keras_dml.evaluation.ranks.packed import PackedRanks
from keras_dml.evaluation.ranks.ranked_positives import BEYOND
from keras_dml.evaluation.ranks.ranks import Ranks


def ranks(last: int, graded: bool = False) -> Ranks:
    return Ranks(
        np.array([3, 70_000]),
        np.array([2, 3]),
        np.array([1, BEYOND, 2, last, BEYOND]),
        np.array([-(2**40), 7]),
        np.linspace(0, 1, 5) if graded else None,
    )


@pytest.mark.parametrize("last", [3, 255, 256, 2**16, 2**32, BEYOND - 1])
@pytest.mark.parametrize("graded", [True, False])
def test_what_is_unpacked_was_packed(last, graded):
    given = ranks(last, graded)
    packed = PackedRanks.of(given)
    for again in (packed, PackedRanks.of_arrays(packed.arrays())):
        found = again.unpacked()
        for name, values in vars(given).items():
            np.testing.assert_array_equal(getattr(found, name), values)
            if values is not None:
                assert getattr(found, name).dtype == values.dtype


@pytest.mark.parametrize("last, size", [(255, 1), (256, 2), (2**16, 4)])
def test_ranks_take_as_few_bytes_as_the_largest(last, size):
    assert PackedRanks.of(ranks(last)).ranks.itemsize == size


def test_no_query_with_a_relevant_image():
    none = np.empty(0, np.int64)
    found = PackedRanks.of(Ranks(none, none, none, none)).unpacked()
    assert len(found.ranks) == len(found.queries) == 0
