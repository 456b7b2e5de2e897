"""Filters: conditions on columns, evaluated to a mask over the rows."""

import contextlib
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from keras_dml.utils.arguments import did_you_mean

Mask: TypeAlias = NDArray[np.bool_]

Where: TypeAlias = Mapping[str, Any] | Callable[[Mapping[str, Any]], Any] | Mask
"""Conditions by column; or from columns to a mask, (N,); or a mask."""

ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

OPERATORS = ("==", "in", "!=", "not in", "contains", *ORDERS)

_LIST_TYPES = (list, tuple, set, frozenset, range, np.ndarray)
"""Types of operands with several values, of which a column must have one."""

_MISSING_TYPES = ("NAType", "NaTType")
"""Types of missing values in pandas, which need not be installed."""

_MAX_FLOAT = sys.float_info.max


class Filters(Mapping[str, NDArray[Any]]):
    """Columns of N rows as read-only arrays, which are made on access."""

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], count: int
    ) -> None:
        self._values, self._count = columns, count
        self._columns: dict[str, Column] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        array = self.column(name).array.view()
        array.flags.writeable = False
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def mask(self, where: Where) -> Mask:
        """Evaluates conditions of `Index.search` to a mask of rows, (N,)."""
        if isinstance(where, Mapping):
            mask = np.ones(self._count, bool)
            for name, condition in where.items():
                column = self.column(name)
                if not isinstance(condition, Mapping):
                    condition = {"==": condition}
                for sign, value in condition.items():
                    values = _operands(name, column.kinds, sign, value)
                    mask &= column.passing(sign, values)
            return mask
        result = where(self) if callable(where) else where
        try:
            array = np.asarray(result)
        except ValueError:  # A list of filters of several kinds.
            array = np.empty(len(result), object)
        if array.dtype != bool or array.shape != (self._count,):
            raise ValueError(
                "`where` of an Index must be conditions by column, one boolean "
                f"for each of its {self._count:,} rows, or a function that "
                f"returns these booleans. Received: {type(result).__name__} of "
                f"shape {array.shape} and dtype "
                f'{array.dtype}. Use for instance {{"name": "crow"}}; a list, '
                "of one filter per query, must have conditions or None, and no "
                "booleans."
            )
        return array

    def column(self, name: Any) -> "Column":
        if name not in self._values:
            raise ValueError(
                "`where` of an Index must use the names of its columns. "
                f"Received: {name!r}.{did_you_mean(name, self._values)} "
                f"Available: {', '.join(self._values) or 'none'}."
            )
        if name not in self._columns:
            self._columns[name] = Column(self._values[name])
        return self._columns[name]


def _operands(
    name: str, kinds: frozenset[str], sign: str, value: Any
) -> list[Any]:
    """The values that a condition compares a column with, validated."""
    if sign not in OPERATORS:
        raise ValueError(
            f"`where` of an Index must compare by one of {OPERATORS}. "
            f"Received: {sign!r} for the column {name!r}."
        )
    if sign == "contains" and kinds - {"list"}:
        raise ValueError(
            "`where` of an Index must use contains with a column "
            f"of lists. Received: the column {name!r}, which holds "
            f'{" and ".join(sorted(kinds))}. Use "in" for one of '
            "several values."
        )
    is_several = isinstance(value, _LIST_TYPES)
    if sign in ORDERS and (is_several or to_plain(value) is None):
        raise ValueError(
            "`where` of an Index must use <, <=, > and >= with text or "
            f"a number. Received: {value!r} for the column {name!r}."
        )
    values = [to_plain(x) for x in (value if is_several else [value])]
    for x in values:
        kind = kind_of(x)
        # NaN is unequal to itself.
        if kind == "other" or x != x:
            raise ValueError(
                "`where` of an Index must compare with text, numbers, "
                f"booleans, dates or None. Received: {x!r} for the column "
                f"{name!r}."
            )
        if kinds and kind not in {*kinds, "none"} and sign != "contains":
            raise ValueError(
                "`where` of an Index must compare a column with values of its "
                f"own kind. Received: {x!r}, a {kind}, for the column "
                f"{name!r}, which holds {' and '.join(sorted(kinds))}."
            )
    return values


def to_plain(value: Any) -> Any:
    """Converts a value to the form that columns store.

    Numbers of fewer than 64 bits become those of 64 bits with the same digits,
    or they would equal no number in a filter. Dates become text of ISO 8601,
    which sorts by time, and times with a zone become UTC.
    """
    if isinstance(value, np.datetime64):
        is_day = np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D")
        value = value.astype(f"datetime64[{'D' if is_day else 'us'}]").item()
    if type(value).__name__ in _MISSING_TYPES:
        return None
    if isinstance(value, np.floating) and value.itemsize < 8:
        return float(str(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return value.isoformat() if isinstance(value, date) else value


class Column:
    """A column of plain values as an array, which is compared at once.

    It holds the numbers, if all values are numbers or None, or else positions
    among the distinct values. `kinds` are those of the values: "number",
    "text", "list".
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self._has_value = np.array([x is not None for x in values], bool)
        self._positions: dict[Any, int] | None = None
        types = set(map(type, values)) - {type(None)}
        if types and types <= {bool, int, float}:
            dtype = float if float in types else int if int in types else bool
            # Integers of more than 64 bits do not fit into an array.
            with contextlib.suppress(OverflowError):
                numbers = [0 if x is None else x for x in values]
                self._array = np.array(numbers, dtype)
                self.kinds = frozenset({"number"})
                return
        positions: dict[Any, int] = {}
        self._positions = positions
        keys = map(_hashable, values)
        self._array = np.array(
            [positions.setdefault(x, len(positions)) for x in keys], np.int64
        )
        self.kinds = frozenset(map(kind_of, positions)) - {"none"}

    @property
    def array(self) -> NDArray[Any]:
        if self._positions is None:
            values = self._array
            if not self._has_value.all():
                values = values.astype(object)
                values[~self._has_value] = None
            return values
        distinct = np.empty(len(self._positions), object)
        distinct[:] = list(self._positions)
        if self.kinds == {"text"} and self._has_value.all():
            distinct = distinct.astype(str)
        return distinct[self._array]

    def passing(self, sign: str, operands: list[Any]) -> Mask:
        """The rows that pass a condition, (N,); `operands` has one for <."""
        if sign in ("!=", "not in"):
            return ~self.passing("==", operands)
        if self._positions is None:
            return self._passing_numbers(sign, operands)
        passes = np.zeros(len(self._positions), bool)
        items = set(map(_hashable, operands))
        if sign in ORDERS:
            (operand,), order = operands, ORDERS[sign]
            kind = kind_of(operand)
            passes[:] = [
                kind_of(x) == kind and order(x, operand)
                for x in self._positions
            ]
        elif sign == "contains":
            passes[:] = [
                isinstance(x, tuple) and not items.isdisjoint(x)
                for x in self._positions
            ]
        else:
            equal = [self._positions[x] for x in items if x in self._positions]
            passes[equal] = True
        return passes[self._array]

    def _passing_numbers(self, sign: str, operands: list[Any]) -> Mask:
        array, has_value = self._array, self._has_value
        if sign in ORDERS:
            (operand,) = operands
            if array.dtype == np.float64:
                # An integer of any size becomes the nearest finite float.
                operand = float(min(max(operand, -_MAX_FLOAT), _MAX_FLOAT))
            mask: Mask = ORDERS[sign](array, operand) & has_value
            return mask
        numbers = [x for x in map(self._cast, operands) if x is not None]
        if len(numbers) == 1:  # `isin` takes much longer.
            mask = array == array.dtype.type(numbers[0])
        else:
            mask = np.isin(array, np.array(numbers, array.dtype))
        mask = mask & has_value
        return mask | ~has_value if None in operands else mask

    def _cast(self, value: Any) -> Any:
        """Casts a number to the array's type; None if it does not fit."""
        if value is None:
            return None
        try:
            cast = self._array.dtype.type(value).item()
        except OverflowError:
            return None
        return cast if cast == value else None


def kind_of(value: Any) -> str:
    """The kind of a value; only values of one kind are compared."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return "number"
    return "list" if isinstance(value, list | tuple) else "other"


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return value
