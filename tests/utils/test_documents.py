"""Tests of what has changed between nested values."""

from keras_dml.utils.documents import differences, listed

BEFORE = {"a": {"b": 1, "c": [1, 2], "e": {}}, "d": None}


def test_what_is_the_same_is_not_named() -> None:
    assert differences(BEFORE, {**BEFORE}) == []
    assert differences({}, {}) == []


def test_each_change_is_a_line() -> None:
    after = {"a": {"b": 2.5, "c": [1, 3, "x"], "e": {}}, "f": True}
    assert differences(BEFORE, after) == [
        "a.b: 1 → 2.5",
        "a.c.1: 2 → 3",
        "a.c.2: nothing → x",
        "f: nothing → True",
    ]
    assert differences({}, {"a": 1}) == ["a: nothing → 1"]


def test_the_first_few_are_listed() -> None:
    changes = differences(dict.fromkeys("abcdefg", 0), {})
    assert listed(changes).splitlines()[-2:] == [
        "  e: 0 → nothing",
        "  … and 2 more",
    ]
