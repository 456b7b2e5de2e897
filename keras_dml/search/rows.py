"""Rows: columns and keys of the rows of an index, by their ids."""

import functools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from keras_dml.search.filters import Filters, Where, plain
from keras_dml.search.keys import Key, as_keys, check_kind, check_new
from keras_dml.utils.types import Rows

Columns = Mapping[str, Sequence[Any]]

Values: TypeAlias = dict[str, list[Any]]
"""Plain values by column, one for each row."""

_PLAIN = (str, int, float, bool, type(None))


class RowTable:
    """Columns of plain values, each row with an id that stays its own.

    Ids count up from 0 and are never given again.

    Attributes:
        ids: Ids of the rows, ascending, (N,).
        columns: Values by column, each a list of N.
        next_id: The id of the next row that is added.
        keys: Ids by own key, all text or all integers, in the order of the
            rows; None if they go by their ids.
    """

    def __init__(
        self,
        ids: Rows,
        columns: Values,
        next_id: int,
        keys: Iterable[Key] | None = None,
    ) -> None:
        self.ids, self.columns, self.next_id = ids, columns, next_id
        self.keys: dict[Key, int] | None = None
        if keys is not None:
            self.keys = dict(zip(keys, ids.tolist(), strict=True))
        self._changed()

    @classmethod
    def empty(cls) -> "RowTable":
        """A table without rows, which takes keys or goes by ids."""
        return cls(np.empty(0, np.int64), {}, 0)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, key: object) -> bool:
        if self.keys is not None:
            return key in self.keys
        return isinstance(key, int | np.integer) and key in self.ids

    @property
    def types(self) -> dict[str, set[type]]:
        """Types of the values of each column, without that of None."""
        none = {type(None)}
        return {n: set(map(type, x)) - none for n, x in self.columns.items()}

    def find(
        self, keys: Any, owner: str, name: str = "keys"
    ) -> list[int | None]:
        """Ids of the rows with some keys; None where there is no such row."""
        listed = as_keys(keys, owner, name)
        if self.keys is not None:
            check_kind(self._key_type, listed, owner, name)
            return [self.keys.get(key) for key in listed]
        if any(isinstance(key, str) for key in listed):
            raise ValueError(
                f"`{name}` of {owner} must be ids, because the rows of the "
                f"index have no keys. Received: {listed[0]!r}. Build the index "
                "with Index(…, keys=…)."
            )
        exists = np.isin(np.array(listed, np.int64), self.ids).tolist()
        pairs = zip(listed, exists, strict=True)
        return [int(i) if is_row else None for i, is_row in pairs]

    def new_keys(self, keys: Any, count: int, owner: str) -> list[Key] | None:
        """Keys of rows to be written, validated; see `check_new`."""
        has_keys = self.keys is not None or (False if len(self) else None)
        return check_new(keys, count, owner, has_keys, self._key_type)

    @property
    def _key_type(self) -> type | None:
        return type(next(iter(self.keys))) if self.keys else None

    def _changed(self) -> None:
        """Forgets what was made of the rows."""
        self._filters: Filters | None = None
        self._listed: list[Key] | None = None

    @property
    def own_keys(self) -> list[Key] | None:
        """Own keys in the order of the rows; None if rows have none."""
        if self._listed is None and self.keys is not None:
            self._listed = list(self.keys)
        return self._listed

    def keys_of(self, ids: Rows) -> list[Key]:
        """Keys of rows with some ids."""
        if (listed := self.own_keys) is None:
            return ids.tolist()
        return [listed[i] for i in np.searchsorted(self.ids, ids).tolist()]

    def add(
        self, columns: Values, count: int, keys: list[Key] | None = None
    ) -> Rows:
        """Adds rows; says their ids. Columns that rows lack are None there."""
        for name in columns:
            self.columns.setdefault(name, [None] * len(self))
        for name, values in self.columns.items():
            values.extend(columns.get(name, [None] * count))
        ids = np.arange(self.next_id, self.next_id + count)
        self.ids = np.concatenate([self.ids, ids])
        self.next_id += count
        if keys is not None:
            self.keys = self.keys or {}
            self.keys.update(zip(keys, ids.tolist(), strict=True))
        self._changed()
        return ids

    def remove(self, ids: Rows) -> None:
        """Removes rows."""
        others = np.flatnonzero(~np.isin(self.ids, ids))
        rows = others.tolist()
        self.ids = self.ids[others]
        for name, values in self.columns.items():
            self.columns[name] = [values[row] for row in rows]
        if self.keys is not None:
            gone = set(ids.tolist())
            self.keys = {k: i for k, i in self.keys.items() if i not in gone}
        self._changed()

    def row(self, row_id: int) -> dict[str, Any]:
        """The values of a row by column."""
        position = int(np.searchsorted(self.ids, row_id))
        if position == len(self) or self.ids[position] != row_id:
            raise KeyError(f"There is no row {row_id} in the index.")
        return {name: x[position] for name, x in self.columns.items()}

    def where(self, where: Where) -> Rows:
        """Ids of the rows that pass a filter; see `Index.search`."""
        if self._filters is None:
            self._filters = Filters(self.columns, len(self))
        return self.ids[self._filters.mask(where)]

    def write(self, path: Path) -> None:
        """Writes the rows, column by column, as JSON."""
        content: dict[str, Any] = {"columns": self.columns}
        # Where no row was removed, they are all ids that were given.
        if len(self) != self.next_id:
            content["ids"] = self.ids.tolist()
        if self.keys is not None:
            content["keys"] = self.own_keys
        if "path" in self.columns:
            content["folder"] = str(path.absolute().parent)
        # One call of `dumps` is several times as fast as `dump`.
        path.write_text(json.dumps(content, allow_nan=False), encoding="ascii")

    @classmethod
    def read(cls, path: Path, count: int, next_id: int) -> "RowTable":
        """The rows that `write` wrote; ValueError if they do not fit.

        A "path" without a file is replaced by that of the file at the same
        place relative to the folder, if the folder was moved.
        """
        content = json.loads(path.read_text(encoding="ascii"))
        columns = content.get("columns") if isinstance(content, dict) else None
        if not isinstance(columns, dict) or not all(
            isinstance(values, list) for values in columns.values()
        ):
            raise ValueError("it has no columns")
        if isinstance(ids := content.get("ids"), list) and len(ids) == count:
            ids = ascending(ids, next_id)
        elif ids is None and count == next_id:
            ids = np.arange(count, dtype=np.int64)
        else:
            raise ValueError(f"it does not have ids for {count} rows")
        values = checked_columns(columns, count)
        before, now = content.get("folder"), str(path.absolute().parent)
        if isinstance(before, str) and before != now and "path" in values:
            values["path"] = _followed(values["path"], before, now)
        keys = content.get("keys")
        if "keys" in content:
            if not isinstance(keys, list) or len(keys) != count:
                raise ValueError(f"it does not have keys for {count} rows")
            keys = check_new(keys, count, "a file")
        return cls(ids, values, next_id, keys)


def label_values(labels: Any) -> list[Any]:
    """A class each, or a list of classes."""
    if labels.ndim == 1:
        return list(labels.tolist())
    return [np.flatnonzero(row).tolist() for row in labels]


def checked_columns(columns: Columns | None, count: int) -> Values:
    """The columns of rows to be added, as lists of plain values."""
    named = as_columns(columns).items()
    return {name: _as_plain(name, x, count) for name, x in named}


def as_columns(columns: Any) -> Columns:
    """`columns`, none by default; ValueError unless they go by name."""
    if columns is None:
        return {}
    if hasattr(columns, "columns") and hasattr(columns, "isna"):
        # A table of pandas.
        return {name: columns[name] for name in columns.columns}
    if not isinstance(columns, Mapping):
        raise ValueError(
            "`columns` of an Index must map names of columns to values. "
            f"Received: a {type(columns).__name__}. Use for instance "
            '{"price": [5, 7]}.'
        )
    return columns


def ascending(ids: Sequence[int], end: int) -> Rows:
    """Ids as an array, (N,); ValueError if they do not ascend below `end`."""
    is_whole = set(map(type, ids)) <= {int}
    if is_whole and (not ids or (min(ids) >= 0 and max(ids) < end)):
        array = np.array(ids, np.int64)
        if (np.diff(array) > 0).all():
            return array
    raise ValueError(f"ids do not ascend below {end}")


def _followed(paths: list[Any], before: str, now: str) -> list[Any]:
    """Paths, with files that moved along with a folder where they are now."""

    @functools.cache
    def places(folder: str) -> list[str]:
        # Most often none or one, so that few files are asked for.
        try:
            relative = os.path.relpath(folder, before)
        except ValueError:  # On another drive, or of another system.
            return []
        moved = os.path.normpath(os.path.join(now, relative))
        return [x for x in (folder, moved) if os.path.isdir(x)]

    def found(path: Any) -> Any:
        if not isinstance(path, str) or not os.path.isabs(path):
            return path
        folder, name = os.path.split(path)
        files = (os.path.join(place, name) for place in places(folder))
        return next(filter(os.path.exists, files), path)

    return [found(path) for path in paths]


def _as_plain(name: str, values: Iterable[Any], count: int) -> list[Any]:
    if not isinstance(name, str):
        raise ValueError(
            "`columns` of an Index must have strings as names. Received: "
            f"{name!r}. Use str(name)."
        )
    if isinstance(values, str | bytes) or not np.iterable(values):
        raise ValueError(
            "`columns` of an Index must have one value per row. Received: "
            f"{values!r} for the column {name!r} and {count} rows. Use a list."
        )
    dtype = getattr(values, "dtype", None)
    is_wide = dtype == np.float64 or getattr(dtype, "kind", "f") not in "fmM"
    if isinstance(values, np.ndarray) and is_wide:
        listed = values.tolist()
    else:
        listed = list(values)
    if hasattr(values, "isna"):  # Of pandas, which has marks of its own.
        missing = values.isna().tolist()
        listed = [
            None if is_missing else x
            for x, is_missing in zip(listed, missing, strict=True)
        ]
    if len(listed) != count:
        raise ValueError(
            "`columns` of an Index must have one value per row. Received: "
            f"{len(listed)} values in the column {name!r} and {count} rows."
        )
    if (types := set(map(type, listed))) <= {*_PLAIN} - {float}:
        whole = [x for x in listed if type(x) is int] if int in types else [0]
        if _fits(min(whole)) and _fits(max(whole)):
            return listed  # A million rows pass in milliseconds.
    for row, value in enumerate(listed):
        try:
            listed[row] = _plain(value)
        except ValueError:
            raise ValueError(
                "`columns` of an Index must hold text, finite numbers, "
                "integers of up to 64 bits, booleans, dates, None or lists of "
                f"these. Received: {value!r} in row {row} of the column "
                f"{name!r}. Use None for unknown values, or pass a pandas "
                "table or column as it is."
            ) from None
    return listed


def _fits(number: int) -> bool:
    """Whether everyone who reads the file can hold an integer."""
    return -(2**63) <= number < 2**64


def _plain(value: Any) -> Any:
    """A value as JSON has it; ValueError if it cannot have it."""
    if type(value) is not float:
        value = plain(value)
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(x) for x in value]
    if not isinstance(value, _PLAIN):
        raise ValueError
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    if type(value) is int and not _fits(value):
        raise ValueError
    return value
