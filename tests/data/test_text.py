"""Tests of byte tokens."""

import numpy as np
import pytest

from keras_dml.data import byte_tokens


def test_bytes_then_zeros() -> None:
    tokens = byte_tokens(["abc", "é", "long text"], 4)
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [
        [97, 98, 99, 0],
        [0xC3, 0xA9, 0, 0],
        [108, 111, 110, 103],
    ]


def test_arrays_of_strings() -> None:
    assert byte_tokens(np.array(["a", "b"]), 1).tolist() == [[97], [98]]
    assert byte_tokens([], 3).shape == (0, 3)


@pytest.mark.parametrize(
    ("texts", "length", "message"),
    [
        ("one", 4, r"sequence of strings.*\['one'\]"),
        (["a", ""], 4, "non-empty strings. Received: '' at row 1"),
        (["a", 3], 4, "must be non-empty strings.*Received: 3 at row 1"),
        (["a"], 0, "`length` of byte_tokens"),
    ],
)
def test_bad_input(texts, length, message) -> None:
    with pytest.raises(ValueError, match=message):
        byte_tokens(texts, length)
