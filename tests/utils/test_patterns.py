"""Tests of `keras_dml.utils.arguments`."""

import pytest

from keras_dml.utils.arguments import check_patterns, matches

PATHS = ["head/dense/kernel", "head/dense/bias", "backbone/kernel"]


def test_a_part_of_the_text_is_enough() -> None:
    assert matches("dense/.*s$", "head/dense/bias")
    assert not matches("^dense", "head/dense/bias")
    with pytest.raises(ValueError, match="`p` must be regular"):
        matches("(", "a", "`p`")


@pytest.mark.parametrize(
    "patterns",
    [[], ["kernel", "head"], ["bias", "head", "backbone"]],
)
def test_each_pattern_decides_on_a_path(patterns: list[str]) -> None:
    check_patterns(patterns, PATHS, "`p`")


@pytest.mark.parametrize(
    ("patterns", "hidden"),
    [
        (["head", "dense/bias"], "dense/bias"),
        (["kernel", "bias", "head"], "head"),
    ],
)
def test_a_pattern_that_never_counts(patterns, hidden) -> None:
    with pytest.raises(ValueError, match=rf"{hidden!r} matches only.*before"):
        check_patterns(patterns, PATHS, "`p`")


def test_a_pattern_that_matches_nothing() -> None:
    with pytest.raises(ValueError, match="'dence', which.* mean 'dense'"):
        check_patterns(["head", "dence"], PATHS, "`p`")
