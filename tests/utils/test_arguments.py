from typing import Any

import numpy as np
import pytest

from keras_dml.utils.arguments import check_count, check_fraction


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers_become_plain(value: Any) -> None:
    count = check_count("Owner", "name", value, least=3)
    assert type(count) is int and count == 3


@pytest.mark.parametrize("value", [0, -1, True, 3.0, np.float32(3), "3", None])
def test_anything_else_is_refused(value: Any) -> None:
    message = "`name` of Owner must be an integer of at least 1.*name="
    with pytest.raises(ValueError, match=message):
        check_count("Owner", "name", value)


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, float("nan")])
def test_a_fraction_lies_between_0_and_1(value: float) -> None:
    check_fraction("Owner", "name", 0.5)
    message = "`name` of Owner must be between 0 and 1.*name="
    with pytest.raises(ValueError, match=message):
        check_fraction("Owner", "name", value)
