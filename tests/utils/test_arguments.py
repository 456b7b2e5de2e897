from typing import Any

import numpy as np
import pytest

from keras_dml.utils.arguments import check_count


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers_become_plain(value: Any) -> None:
    count = check_count("Owner", "name", value, least=3)
    assert type(count) is int and count == 3


@pytest.mark.parametrize("value", [0, -1, True, 3.0, np.float32(3), "3", None])
def test_anything_else_is_refused(value: Any) -> None:
    message = "`name` of Owner must be an integer of at least 1.*name="
    with pytest.raises(ValueError, match=message):
        check_count("Owner", "name", value)
