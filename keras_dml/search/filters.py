"""Filters: the rows whose columns fulfill conditions."""

import operator
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.types import Rows

Mask: TypeAlias = NDArray[np.bool_]

Where: TypeAlias = Mapping[str, Any] | Callable[[Mapping[str, Any]], Any] | Mask
"""Conditions by column; or from columns to a mask, (N,); or a mask."""

ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_SAME = {"==": "==", "in": "==", "!=": "!=", "not in": "!="}

CONTAINS = "contains"

OPERATORS = (*_SAME, CONTAINS, *ORDERS)

_SEVERAL = (list, tuple, set, frozenset, range, np.ndarray)
"""Types that give several values, of which a column must have one."""

_MISSING = ("NAType", "NaTType")
"""Types of what is missing in pandas, which need not be installed."""

_MOST = sys.float_info.max


class Filters(Mapping[str, NDArray[Any]]):
    """Columns of N rows as read-only arrays, made when they are asked for."""

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], count: int
    ) -> None:
        self._columns = columns
        self._count = count
        self._made: dict[str, Column] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        array = self.column(name).array.view()
        array.flags.writeable = False
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def mask(self, where: Where) -> Mask:
        """Which rows pass, (N,).

        Raises:
            ValueError: If `where` is not as described in `Index.search`.
        """
        if isinstance(where, Mapping):
            mask = np.ones(self._count, bool)
            for name, sign, wanted in conditions(
                where, lambda name: self.column(name).kinds
            ):
                mask &= self.column(name).passing(sign, wanted)
            return mask
        found = where(self) if callable(where) else where
        array = np.asarray(found)
        if array.dtype != bool or array.shape != (self._count,):
            raise ValueError(
                "`where` of an Index must be conditions by column, one boolean "
                f"for each of its {self._count:,} rows, or a function that "
                f"returns these booleans. Received: {type(found).__name__} of "
                f"shape {array.shape} and dtype "
                f'{array.dtype}. Use for instance {{"name": "crow"}}.'
            )
        return array

    def column(self, name: Any) -> "Column":
        """A column, to compare."""
        check_column(name, self._columns)
        if name not in self._made:
            self._made[name] = Column(self._columns[name])
        return self._made[name]


def conditions(
    where: Mapping[str, Any], kinds: Callable[[Any], frozenset[str]]
) -> Iterator[tuple[str, str, Any]]:
    """The conditions of a filter, checked, one by one.

    Args:
        where: Conditions by column.
        kinds: From the name of a column to the kinds of its values, "number",
            "text" and "list"; an error if there is no such column.

    Yields:
        Column; "==", "!=" or "contains", and the values that are meant; or
        another operator, and a value.

    Raises:
        ValueError: If `where` is not as described in `Index.search`.
    """
    for name, condition in where.items():
        held = kinds(name)
        if not isinstance(condition, Mapping):
            condition = {"==": condition}
        for sign, value in condition.items():
            if sign not in OPERATORS:
                raise ValueError(
                    f"`where` of an Index must compare by one of {OPERATORS}. "
                    f"Received: {sign!r} for the column {name!r}."
                )
            if sign == CONTAINS and held - {"list"}:
                raise ValueError(
                    "`where` of an Index must use contains with a column "
                    f"of lists. Received: the column {name!r}, which holds "
                    f'{" and ".join(sorted(held))}. Use "in" for one of '
                    "several values."
                )
            several = isinstance(value, _SEVERAL)
            if sign in ORDERS and (several or plain(value) is None):
                raise ValueError(
                    "`where` of an Index must use <, <=, > and >= with text or "
                    f"a number. Received: {value!r} for the column {name!r}."
                )
            values = [plain(x) for x in (value if several else [value])]
            for x in values:
                if x is not None:
                    own = frozenset[str]() if sign == CONTAINS else held
                    _check_kind(name, x, own)
            if sign in ORDERS:
                yield name, sign, values[0]
            else:
                yield name, _SAME.get(sign, sign), values


def by_condition(
    where: Any, count: int, owner: str
) -> Iterator[tuple[Rows | slice, Where | None]]:
    """Queries, and the filter that is theirs: one for all, or one for each."""
    is_list = isinstance(where, list | tuple) and len(where) > 0
    if not is_list or not all(isinstance(x, Mapping | None) for x in where):
        yield slice(None), where
        return
    if len(where) != count:
        raise ValueError(
            f"`where` of {owner} must be one filter, or a list of one per "
            f"query. Received: {len(where)} conditions for {count} queries."
        )
    queries: dict[bytes, list[int]] = {}
    for query, condition in enumerate(where):
        queries.setdefault(pickle.dumps(condition), []).append(query)
    for rows in queries.values():
        yield np.array(rows), where[rows[0]]


def plain(value: Any) -> Any:
    """A value as columns keep it.

    Numbers of fewer than 64 bits become those of 64 that are written alike, as
    0.1 is: else they equal nothing that anyone writes. Dates become text of
    ISO 8601, which sorts by time, and times with a zone those of UTC.
    """
    if isinstance(value, np.datetime64):
        is_day = np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D")
        value = value.astype(f"datetime64[{'D' if is_day else 'us'}]").item()
    if type(value).__name__ in _MISSING:
        return None
    if isinstance(value, np.floating) and value.itemsize < 8:
        return float(str(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return value.isoformat() if isinstance(value, date) else value


def as_float(value: float) -> float:
    """A number, also an integer of any size, as the nearest finite float."""
    return float(min(max(value, -_MOST), _MOST))


def check_column(name: Any, names: Iterable[str]) -> None:
    """ValueError if there is no column of a name."""
    if name not in names:
        raise ValueError(
            "`where` of an Index must use the names of its columns. Received: "
            f"{name!r}.{did_you_mean(name, names)} Available: "
            f"{', '.join(names) or 'none'}."
        )


class Column:
    """A column as an array, which is compared at once.

    That is an array of its numbers, if all are numbers or None; for others of
    the places that its values have among the distinct ones.

    Args:
        values: Plain values, N.

    Attributes:
        kinds: Kinds of the values: "number", "text", "list".
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self._known = np.array([x is not None for x in values], bool)
        self._places: dict[Any, int] | None = None
        if (numbers := _as_numbers(values)) is not None:
            self._array, self.kinds = numbers, frozenset({"number"})
            return
        places: dict[Any, int] = {}
        self._places = places
        self._array = np.array(
            [places.setdefault(_hashable(x), len(places)) for x in values],
            np.int64,
        )
        self.kinds = frozenset(map(kind_of, places)) - {"none"}

    @property
    def array(self) -> NDArray[Any]:
        """All values as an array, (N,)."""
        if self._places is None:
            values = self._array
            if not self._known.all():
                values = values.astype(object)
                values[~self._known] = None
            return values
        distinct = np.empty(len(self._places), object)
        distinct[:] = list(self._places)
        if self.kinds == {"text"} and self._known.all():
            distinct = distinct.astype(str)
        return distinct[self._array]

    def passing(self, sign: str, wanted: Any) -> Mask:
        """The rows that pass one of `conditions`, (N,)."""
        if sign == "!=":
            return ~self.passing("==", wanted)
        if self._places is None:
            return self._passing_numbers(sign, wanted)
        if sign == "==":
            passes = np.zeros(len(self._places), bool)
            keys = map(_hashable, wanted)
            passes[[self._places[x] for x in keys if x in self._places]] = True
            return passes[self._array]
        if sign == CONTAINS:
            some = set(map(_hashable, wanted))
            listed = [
                isinstance(x, tuple) and not some.isdisjoint(x)
                for x in self._places
            ]
        else:
            kind, order = kind_of(wanted), ORDERS[sign]
            listed = [
                kind_of(x) == kind and order(x, wanted) for x in self._places
            ]
        return np.array(listed, bool)[self._array]

    def _passing_numbers(self, sign: str, wanted: Any) -> Mask:
        array, known = self._array, self._known
        if sign == "==":
            some = [x for x in map(self._cast, wanted) if x is not None]
            found = np.isin(array, np.array(some, array.dtype)) & known
            return found | ~known if None in wanted else found
        if array.dtype == np.float64:
            wanted = as_float(wanted)
        mask: Mask = ORDERS[sign](array, wanted) & known
        return mask

    def _cast(self, value: Any) -> Any:
        """A number in the array's type; None if it cannot be there."""
        if value is None:
            return None
        try:
            cast = self._array.dtype.type(value).item()
        except OverflowError:
            return None
        return cast if cast == value else None


def _as_numbers(values: Sequence[Any]) -> NDArray[Any] | None:
    """Numbers as an array, 0 for None; None if one is no number of 64 bits."""
    types = set(map(type, values)) - {type(None)}
    if not types or not types <= {bool, int, float}:
        return None
    dtype = float if float in types else int if int in types else bool
    try:
        return np.array([0 if x is None else x for x in values], dtype)
    except OverflowError:
        return None


def _check_kind(name: str, value: Any, held: frozenset[str]) -> None:
    """ValueError if a value cannot be in a column: a text among numbers."""
    kind = kind_of(value)
    # NaN is unequal to itself.
    if kind == "other" or value != value:
        raise ValueError(
            "`where` of an Index must compare with text, numbers, booleans, "
            f"dates or None. Received: {value!r} for the column {name!r}."
        )
    if held and kind not in held:
        holds = " and ".join(sorted(held))
        raise ValueError(
            "`where` of an Index must compare a column with values of its own "
            f"kind. Received: {value!r}, a {kind}, for the column {name!r}, "
            f"which holds {holds}."
        )


def kind_of(value: Any) -> str:
    """What a filter may compare a value with: others of its kind."""
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
