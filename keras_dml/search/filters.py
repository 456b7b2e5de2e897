"""Filters: the rows whose columns fulfil conditions."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from keras_dml.utils.arguments import did_you_mean

Mask: TypeAlias = NDArray[np.bool_]

Where: TypeAlias = Mapping[str, Any] | Callable[[Mapping[str, Any]], Any] | Mask
"""Conditions by column; or from columns to a mask, (N,); or a mask."""

_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

OPERATORS = ("==", "!=", *_ORDERS)

_EXACT = 2**53
"""From here on, float64 merges integers."""


class Filters:
    """Columns of rows as arrays, which compare all rows at once.

    Each is made when a filter first asks for it.

    Args:
        columns: Plain values by column, N each.
        count: Number of rows, N.
    """

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], count: int
    ) -> None:
        self._columns = columns
        self._count = count
        self._made: dict[str, _Numbers | _Values] = {}

    def mask(self, where: Where) -> Mask:
        """Which rows pass, (N,).

        Raises:
            ValueError: If `where` is not as described in `Index.search`.
        """
        if isinstance(where, Mapping):
            kept = np.ones(self._count, bool)
            for name, condition in where.items():
                kept &= self._column_mask(name, condition)
            return kept
        found = where(_Arrays(self)) if callable(where) else where
        array = np.asarray(found)
        if array.dtype != bool or array.shape != (self._count,):
            raise ValueError(
                "`where` of an Index must be conditions by column, or one "
                f"boolean for each of its {self._count:,} rows, or a function "
                "that returns these. Received: "
                f"{type(found).__name__} of shape {array.shape} and dtype "
                f'{array.dtype}. Use for instance {{"name": "crow"}}.'
            )
        return array

    def column(self, name: Any) -> "_Numbers | _Values":
        """A column, to compare."""
        if name not in self._columns:
            raise ValueError(
                "`where` of an Index must name its columns. Received: "
                f"{name!r}.{did_you_mean(name, self._columns)} There are: "
                f"{', '.join(self._columns) or 'none'}."
            )
        if name not in self._made:
            values = self._columns[name]
            self._made[name] = _Numbers.of(values) or _Values(values)
        return self._made[name]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self._columns)

    def _column_mask(self, name: str, condition: Any) -> Mask:
        column = self.column(name)
        if not isinstance(condition, Mapping):
            return column.equal(_alternatives(name, condition, column))
        kept = np.ones(self._count, bool)
        for sign, value in condition.items():
            if sign not in OPERATORS:
                raise ValueError(
                    f"`where` of an Index must compare by one of {OPERATORS}. "
                    f"Received: {sign!r} for the column {name!r}."
                )
            if sign in _ORDERS:
                _check_ordered(name, value, column)
                kept &= column.ordered(_ORDERS[sign], value)
            else:
                same = column.equal(_alternatives(name, value, column))
                kept &= same if sign == "==" else ~same
        return kept


class _Numbers:
    """A column of numbers or booleans; some may be None.

    Args:
        array: The numbers, (N,); anything where there is none.
        known: Where there is one, (N,).
    """

    kinds = frozenset({"number"})

    def __init__(self, array: NDArray[Any], known: Mask) -> None:
        self._array = array
        self._known = known

    @classmethod
    def of(cls, values: Sequence[Any]) -> "_Numbers | None":
        """A column if it is of numbers that an array holds exactly."""
        types = set(map(type, values)) - {type(None)}
        if not types or not types <= {bool, int, float}:
            return None
        dtype: Any = np.float64 if float in types else np.int64
        if types == {bool}:
            dtype = np.bool_
        known = np.array([x is not None for x in values], bool)
        numbers = [0 if x is None else x for x in values]
        if dtype == np.float64 and int in types:
            whole = [abs(x) for x in numbers if isinstance(x, int)]
            if max(whole) > _EXACT:
                return None
        try:
            return cls(np.array(numbers, dtype), known)
        except OverflowError:
            return None

    @property
    def array(self) -> NDArray[Any]:
        """All values as an array, (N,)."""
        if self._known.all():
            return self._array
        values = self._array.astype(object)
        values[~self._known] = None
        return values

    def equal(self, wanted: Sequence[Any]) -> Mask:
        """Where the value is one of several."""
        found = np.zeros(len(self._array), bool)
        numbers = [x for x in map(self._cast, wanted) if x is not None]
        if numbers:
            some = np.array(numbers, self._array.dtype)
            found = np.isin(self._array, some) & self._known
        return found | ~self._known if None in wanted else found

    def ordered(self, order: Callable[[Any, Any], Any], value: Any) -> Mask:
        """Where the value is less, or so."""
        try:
            mask: Mask = order(self._array, value) & self._known
        except OverflowError:  # An integer beyond all floats.
            return self.ordered(order, float("inf" if value > 0 else "-inf"))
        return mask

    def _cast(self, value: Any) -> Any:
        """A number in the array's type; None if it cannot be there."""
        if value is None:
            return None
        try:
            cast = self._array.dtype.type(value)
        except OverflowError:
            return None
        return cast if cast.item() == value else None


class _Values:
    """A column of any plain values: text, lists, or of several kinds.

    Args:
        values: The values, N.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self._codes: dict[Any, int] = {}
        self._code_of_row = np.array(
            [
                self._codes.setdefault(_hashable(x), len(self._codes))
                for x in values
            ],
            np.int64,
        )
        self.kinds = frozenset(map(_kind, self._codes)) - {"none"}

    @property
    def array(self) -> NDArray[Any]:
        """All values as an array, (N,)."""
        distinct = np.empty(len(self._codes), object)
        distinct[:] = list(self._codes)
        if self.kinds == {"text"} and None not in self._codes:
            distinct = distinct.astype(str)
        return distinct[self._code_of_row]

    def equal(self, wanted: Sequence[Any]) -> Mask:
        """Where the value is one of several."""
        keys = [_hashable(x) for x in wanted]
        is_wanted = np.zeros(len(self._codes), bool)
        is_wanted[[self._codes[x] for x in keys if x in self._codes]] = True
        return is_wanted[self._code_of_row]

    def ordered(self, order: Callable[[Any, Any], Any], value: Any) -> Mask:
        """Where the value is less, or so; those of other kinds are not."""
        kind, value = _kind(value), _hashable(value)
        passes = [_kind(x) == kind and order(x, value) for x in self._codes]
        return np.array(passes, bool)[self._code_of_row]


class _Arrays(Mapping[str, NDArray[Any]]):
    """Columns as read-only arrays, made when they are asked for."""

    def __init__(self, filters: Filters) -> None:
        self._filters = filters

    def __getitem__(self, name: str) -> NDArray[Any]:
        array = self._filters.column(name).array.view()
        array.flags.writeable = False
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._filters.names)

    def __len__(self) -> int:
        return len(self._filters.names)


def _alternatives(
    name: str, condition: Any, column: _Numbers | _Values
) -> list[Any]:
    """The values of which a column must have one."""
    several = isinstance(
        condition, list | tuple | set | frozenset | range | np.ndarray
    )
    values = list(condition) if several else [condition]
    values = [x.item() if isinstance(x, np.generic) else x for x in values]
    for value in values:
        if value is not None:
            _check_kind(name, value, column)
    return values


def _check_ordered(name: str, value: Any, column: _Numbers | _Values) -> None:
    if _kind(value) not in ("text", "number"):
        raise ValueError(
            "`where` of an Index must compare by order with text or a "
            f"number. Received: {value!r} for the column {name!r}."
        )
    _check_kind(name, value, column)


def _check_kind(name: str, value: Any, column: _Numbers | _Values) -> None:
    """ValueError if a value cannot be in a column: a text among numbers."""
    kind = _kind(value)
    # NaN is unequal to itself.
    if kind == "other" or value != value:
        raise ValueError(
            "`where` of an Index must compare with text, numbers, booleans "
            f"or None. Received: {value!r} for the column {name!r}."
        )
    if column.kinds and kind not in column.kinds:
        holds = " and ".join(sorted(column.kinds))
        raise ValueError(
            "`where` of an Index must compare a column with what it holds. "
            f"Received: {value!r}, a {kind}, for the column {name!r} of "
            f"{holds}."
        )


def _kind(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return "number"
    return "list" if isinstance(value, list | tuple) else "other"


def _hashable(value: Any) -> Any:
    """A value, lists as tuples."""
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return value
