import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import keras
import numpy as np
import pytest

from keras_dml.utils.arguments import (
    Checked,
    check_arguments,
    check_count,
    check_patterns,
    matches,
)
from keras_dml.utils.types import Count, Fraction, Positive


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_integers_become_plain_python(value: Any) -> None:
    count = check_count("Owner", "name", value, minimum=3)
    assert type(count) is int and count == 3


@pytest.mark.parametrize("value", [0, -1, True, 3.0, np.float32(3), "3", None])
def test_other_values_raise(value: Any) -> None:
    message = "`name` of Owner must be an integer of at least 1.*name="
    with pytest.raises(ValueError, match=message):
        check_count("Owner", "name", value)


class Base(Checked):
    def __init__(self, size: Count, share: Fraction = 0.5) -> None:
        self.size, self.share = size, share


class Derived(Base):
    def __init__(
        self,
        size: int,
        kind: Literal["a", "b"] | None = None,
        places: Sequence[Count] | Positive = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(size, **kwargs)


@dataclass(frozen=True)
class Stored(Checked):
    box: tuple[Positive, Literal["x"]] = (1.0, "x")


@check_arguments
def doubled(count: Count | Literal["auto"] = "auto") -> Any:
    """A function."""
    return 2 * count  # type: ignore[operator]


AND_A_TYPE = [
    (Base, {"size": 0}, "`size` of Base must be an integer of at least 1"),
    (Base, {"size": 2**31}, "must be between 1 and 2147483647"),
    (Base, {"size": 1, "share": 1}, "must be between 0 and 1, exclusive"),
    (Base, {"size": 1, "share": None}, "share=None"),
    (Derived, {"size": True}, "`size` of Derived must be an integer.*True"),
    (Derived, {"size": 1, "share": -0.1}, "`share` of Derived must be"),
    (Derived, {"size": 1, "kind": "c"}, r"must be one of .*\('a', 'b'\)"),
    (Derived, {"size": 1, "places": [1, 0]}, "an integer of.*places=0"),
    (Derived, {"size": 1, "places": -1.0}, "greater than 0"),
    (Stored, {"box": (0, "x")}, "`box` of Stored must be greater than 0"),
    (Stored, {"box": (1, "y")}, "`box` of Stored must be one of"),
    (doubled, {"count": 0.5}, "`count` of doubled must be an integer"),
    (doubled, {"count": "x"}, r"must be one of \('auto',\)"),
]


@pytest.mark.parametrize(("call", "arguments", "message"), AND_A_TYPE)
def test_arguments_outside_their_types_raise(
    call: Callable[..., Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call(**arguments)


def test_arguments_within_their_types_are_accepted() -> None:
    symbol = keras.KerasTensor(())
    assert Base(np.int8(3), symbol).share is symbol  # type: ignore[arg-type]
    assert Derived(1, None, range(1, 3), share=0.2).share == 0.2
    assert Stored().box == (1.0, "x") and doubled(2) == 4
    assert copy.copy(Base(4)).size == 4


def test_checks_keep_docstring_and_signature() -> None:
    assert doubled.__doc__ == "A function."
    assert list(inspect.signature(Derived).parameters)[:2] == ["size", "kind"]

    class Inherits(Base):
        pass

    assert list(inspect.signature(Inherits).parameters) == ["size", "share"]


PATHS = ["head/dense/kernel", "head/dense/bias", "backbone/kernel"]


def test_pattern_may_match_a_part_of_the_path() -> None:
    assert matches("dense/.*s$", "head/dense/bias")
    assert not matches("^dense", "head/dense/bias")
    with pytest.raises(ValueError, match="`p` must be regular"):
        matches("(", "a", "`p`")


@pytest.mark.parametrize(
    "patterns",
    [[], ["kernel", "head"], ["bias", "head", "backbone"]],
)
def test_patterns_that_each_decide_a_path_are_accepted(
    patterns: list[str],
) -> None:
    check_patterns(patterns, PATHS, "`p`")


@pytest.mark.parametrize(
    ("patterns", "hidden"),
    [
        (["head", "dense/bias"], "dense/bias"),
        (["kernel", "bias", "head"], "head"),
    ],
)
def test_shadowed_pattern_raises(patterns, hidden) -> None:
    with pytest.raises(ValueError, match=rf"{hidden!r} matches only.*before"):
        check_patterns(patterns, PATHS, "`p`")


def test_pattern_without_a_match_raises() -> None:
    with pytest.raises(ValueError, match="'dence', which.* mean 'dense'"):
        check_patterns(["head", "dence"], PATHS, "`p`")
