"""Expressions: conditions of a filter in the language of a database."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from keras_dml.search.filters import CONTAINS, ORDERS, exactly

_LARGEST = 2**63
"""Above every integer that a database can hold."""


class Language(ABC):
    """How a database writes conditions.

    Attributes:
        nothing: What no row fulfills.
    """

    nothing: str

    @abstractmethod
    def unknown(self, name: str) -> str:
        """That a column has no value."""

    @abstractmethod
    def one_of(self, name: str, values: list[Any]) -> str:
        """That a column has a value, which is one of some."""

    @abstractmethod
    def compared(self, name: str, sign: str, value: Any) -> str:
        """That a column has a value, which is less, or so."""

    def expression(
        self, name: str, sign: str, wanted: Any, types: set[type]
    ) -> str:
        """One of `filters.conditions`, for a column of some types."""
        if sign == CONTAINS:
            raise ValueError(
                "`where` of an Index in a database must use one of ==, !=, in, "
                "not in, <, <=, > and >=. Received: 'contains' for the column "
                f"{name!r}. Use an index in a folder to search in lists."
            )
        if sign in ORDERS:
            return _any(self, self._ordered(name, sign, wanted, types))
        parts = [self.unknown(name)] if None in wanted else []
        if values := list(_as_stored(name, wanted, types)):
            parts.append(self.one_of(name, values))
        same = _any(self, parts)
        return same if sign == "==" else f"(not {same})"

    def _ordered(
        self, name: str, sign: str, value: Any, types: set[type]
    ) -> Iterator[str]:
        if isinstance(value, str):
            if str in types:
                yield self.compared(name, sign, value)
            return
        if bool in types:
            passing = [x for x in (False, True) if ORDERS[sign](x, value)]
            if passing:
                yield self.one_of(name, passing)
        if float in types:
            yield self.compared(name, *_of_floats(sign, value))
        elif int in types and (exact := _of_integers(sign, value)):
            yield self.compared(name, *exact)


def widest(types: set[type]) -> type:
    """The type of the values in a column that holds one type."""
    return next(x for x in (list, str, float, int, bool) if x in types)


def _any(language: Language, parts: Iterable[str]) -> str:
    return f"({' or '.join(parts) or language.nothing})"


def _as_stored(name: str, wanted: list[Any], types: set[type]) -> Iterator[Any]:
    """Values as a column of some types may hold them; others it never has."""
    for value in wanted:
        if isinstance(value, list | tuple):
            raise ValueError(
                "`where` of an Index in a database must compare with text, "
                f"numbers, booleans or None. Received: {value!r} for the "
                f"column {name!r}. Use an index in a folder to compare lists."
            )
        if isinstance(value, str) and str in types:
            yield value
        if not isinstance(value, bool | int | float):
            continue
        if bool in types and value in (0, 1):
            yield bool(value)
        is_whole = math.isfinite(value) and value == int(value)
        if int in types and is_whole and -_LARGEST <= value < _LARGEST:
            yield int(value)
        elif float in types and math.isfinite(
            number := exactly("==", value, is_whole=False)[1]
        ):
            if number == value:
                yield number


def _of_floats(sign: str, value: Any) -> tuple[str, float]:
    """A comparison of floats, all of which are finite."""
    sign, number = exactly(sign, value, is_whole=False)
    if math.isfinite(number):
        return sign, number
    # Beyond all of them: everything is less, or nothing is.
    return f"{sign[0]}=" if (number > 0) == (sign[0] == "<") else sign[0], (
        math.copysign(sys.float_info.max, number)
    )


def _of_integers(sign: str, value: Any) -> tuple[str, int] | None:
    """A comparison of integers of 64 bits that is exact; None if none fit."""
    limit = min(max(value, -_LARGEST - 1), _LARGEST)
    down, up = math.floor(limit), math.ceil(limit)
    if sign[0] == "<":
        most = up - 1 if sign == "<" else down
        if most <= -_LARGEST:  # The least integer is no literal.
            return ("<", 1 - _LARGEST) if most == -_LARGEST else None
        return "<=", min(most, _LARGEST - 1)
    least = down + 1 if sign == ">" else up
    if least <= -_LARGEST:
        return "<=", _LARGEST - 1
    return (">=", least) if least < _LARGEST else None
