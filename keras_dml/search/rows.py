"""Rows: columns and keys of the rows of an index, by their ids."""

import functools
import json
import math
import os
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count as counter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from keras_dml.search.filters import Filters, Where, to_plain
from keras_dml.utils.types import Rows

Key: TypeAlias = str | int
"""The key of a row; its id if rows have no keys."""

Columns = Mapping[str, Sequence[Any]]

Values: TypeAlias = dict[str, list[Any]]
"""Plain values by column, one for each row."""

LABEL, NAME = "label", "name"
"""Columns with the number and the name of each row's class."""

KEY, VECTOR = "key", "vector"
"""Names of the two columns that every gallery in Arrow has."""

_PLAIN_TYPES = (str, int, float, bool, type(None))

_INT64 = np.iinfo(np.int64)


class RowTable:
    """Columns of plain values of rows, whose ids count up from 0.

    `ids`, (N,), ascend, and each column is a list of N. The attribute `keys`
    has the ids by key, in the order of the rows; None if rows have no keys.
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
        self._clear_caches()

    @classmethod
    def empty(cls) -> "RowTable":
        """A table without rows, to which keys may be added or not."""
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
            self._check_kind(listed, owner, name)
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
        """Keys of `count` rows to be written, validated; None without any."""
        if keys is None:
            if self.keys is not None:
                raise ValueError(
                    f"`keys` of {owner} must be given, because the rows of the "
                    "index have keys. Received: no keys."
                )
            return None
        if self.keys is None and len(self):
            raise ValueError(
                f"`keys` of {owner} require an index whose rows have keys. "
                "Received: keys for an index whose rows have only ids. Build "
                "it with Index(…, keys=…)."
            )
        listed = as_keys(keys, owner)
        if len(listed) != count:
            raise ValueError(
                f"`keys` of {owner} must be one key per row. Received: "
                f"{len(listed)} keys for {count} rows."
            )
        if len(set(listed)) < count:
            first = {key: i for i, key in reversed([*enumerate(listed)])}
            position = next(i for i, key in enumerate(listed) if first[key] < i)
            raise ValueError(
                f"`keys` of {owner} must be unique. Received: "
                f"{listed[position]!r} again at position {position}. Use one "
                "row per key."
            )
        self._check_kind(listed, owner, "keys")
        return listed

    def _check_kind(self, keys: list[Key], owner: str, name: str) -> None:
        kind = type(next(iter(self.keys))) if self.keys else None
        if keys and kind and kind is not type(keys[0]):
            names = {str: "text", int: "integers"}
            raise ValueError(
                f"`{name}` of {owner} must be {names[kind]}, like those of the "
                f"index. Received: {keys[0]!r}. Use {kind.__name__}(key) to "
                "convert it."
            )

    def _clear_caches(self) -> None:
        self._filters: Filters | None = None
        self._listed: list[Key] | None = None

    def keys_of(self, ids: Rows) -> list[Key]:
        """Keys of rows with some ids; the ids where rows have no keys."""
        if self.keys is None:
            return ids.tolist()
        if self._listed is None:
            self._listed = list(self.keys)
        rows = np.searchsorted(self.ids, ids).tolist()
        return [self._listed[row] for row in rows]

    def with_labels(self, columns: Values, is_own: bool, owner: str) -> Values:
        """Columns of rows to be written, with labels numbered as in this table.

        Every set numbers its classes from 0. A name that the table has gets its
        label there; another name keeps its number if that is free, and gets a
        new one otherwise. The user's own columns (`is_own`) are only checked.

        Raises:
            ValueError: If one name has several labels.
        """
        types = self.types
        has_classes = types.get(LABEL) == {int} and types.get(NAME) == {str}
        if not has_classes or not {LABEL, NAME} <= set(columns):
            return columns
        pairs = list(zip(columns[LABEL], columns[NAME], strict=True))
        classes = sorted({pair for pair in pairs if None not in pair})
        by_name: dict[str, set[int]] = defaultdict(set)
        for label, name in zip(
            self.columns[LABEL], self.columns[NAME], strict=True
        ):
            if label is not None:
                by_name[name].add(label)
        new_labels: dict[tuple[Any, Any], int] = {}
        used_labels = set().union(*by_name.values())
        last = max(used_labels | {label for label, _ in classes}, default=-1)
        unused = counter(last + 1)
        for label, name in classes:
            labels = by_name.get(name, set())
            if is_own and len(labels) == 1 and label not in labels:
                (other,) = labels
                raise ValueError(
                    f"`columns` of {owner} must give a class the label that it "
                    f"has in the index. Received: label {label} for the name "
                    f"{name!r}, which has label {other} there. Use {other}, or "
                    "another name."
                )
            if not is_own and len(labels) > 1:
                raise ValueError(
                    f"`items` of {owner} must have classes with one label "
                    f"each. Received: {name!r}, which has the labels "
                    f"{sorted(labels)} in the index. Build the index with one "
                    "label for them."
                )
            if labels:
                new_labels[label, name] = min(labels)
            else:
                new_labels[label, name] = (
                    next(unused) if label in used_labels else label
                )
        if is_own:
            return columns
        renumbered = [new_labels.get(pair, pair[0]) for pair in pairs]
        return {**columns, LABEL: renumbered}

    def add(
        self, columns: Values, count: int, keys: list[Key] | None = None
    ) -> Rows:
        """Adds rows; returns their ids. Missing columns are None there."""
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
        self._clear_caches()
        return ids

    def remove(self, ids: Rows) -> None:
        remaining = np.flatnonzero(~np.isin(self.ids, ids))
        rows = remaining.tolist()
        self.ids = self.ids[remaining]
        for name, values in self.columns.items():
            self.columns[name] = [values[row] for row in rows]
        if self.keys is not None:
            id_set = set(ids.tolist())
            self.keys = {k: i for k, i in self.keys.items() if i not in id_set}
        self._clear_caches()

    def row(self, row_id: int) -> dict[str, Any]:
        position = int(np.searchsorted(self.ids, row_id))
        if position == len(self) or self.ids[position] != row_id:
            raise KeyError(f"There is no row {row_id} in the index.")
        return {name: x[position] for name, x in self.columns.items()}

    def where(self, where: Where) -> Rows:
        """Ids of the rows that pass a filter; see `Index.search`."""
        if self._filters is None:
            self._filters = Filters(self.columns, len(self))
        return self.ids[self._filters.mask(where)]

    def split(
        self, where: Any, count: int, owner: str
    ) -> Iterator[tuple[Rows | slice, Rows | None]]:
        """Yields queries, and ids of the rows that pass their filter, or None.

        There is one filter for all queries, or one for each.
        """
        is_list = isinstance(where, list | tuple) and len(where) > 0
        if not is_list or not all(isinstance(x, Mapping | None) for x in where):
            yield slice(None), None if where is None else self.where(where)
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
            condition = where[rows[0]]
            ids = None if condition is None else self.where(condition)
            yield np.array(rows), ids

    def write(self, path: Path) -> None:
        """Writes the rows, column by column, as JSON."""
        content: dict[str, Any] = {"columns": self.columns}
        # If no row was removed, the ids are all numbers below `next_id`.
        if len(self) != self.next_id:
            content["ids"] = self.ids.tolist()
        if self.keys is not None:
            content["keys"] = list(self.keys)
        if "path" in self.columns:
            content["folder"] = str(path.absolute().parent)
        # One call of `dumps` is several times as fast as `dump`.
        path.write_text(json.dumps(content, allow_nan=False), encoding="ascii")

    @classmethod
    def read(cls, path: Path, count: int, next_id: int) -> "RowTable":
        """Reads the rows that `write` wrote; ValueError if they do not fit.

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
            ids = parse_ids(ids, next_id)
        elif ids is None and count == next_id:
            ids = np.arange(count, dtype=np.int64)
        else:
            raise ValueError(f"it does not have ids for {count} rows")
        values = checked_columns(columns, count)
        before, now = content.get("folder"), str(path.absolute().parent)
        if isinstance(before, str) and before != now and "path" in values:
            values["path"] = _relocate(values["path"], before, now)
        keys = content.get("keys")
        if "keys" in content:
            if not isinstance(keys, list) or len(keys) != count:
                raise ValueError(f"it does not have keys for {count} rows")
            keys = cls.empty().new_keys(keys, count, "a file")
        return cls(ids, values, next_id, keys)


def as_keys(keys: Any, owner: str, name: str = "keys") -> list[Key]:
    """Several keys, or one, as a list of text or of Python's integers."""
    if isinstance(keys, str | int | np.integer):
        keys = [keys]
    if isinstance(keys, bytes) or not np.iterable(keys):
        raise _key_error(owner, name, keys, "")
    listed = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
    if set(map(type, listed)) == {str}:
        return listed  # A million pass in milliseconds.
    listed = [x.item() if isinstance(x, np.generic) else x for x in listed]
    kind = type(listed[0]) if listed else int
    for position, key in enumerate(listed):
        if type(key) is not kind or kind not in (str, int):
            raise _key_error(owner, name, key, f", at position {position}")
        if kind is int and not _INT64.min <= key <= _INT64.max:
            raise ValueError(
                f"`{name}` of {owner} that are integers must fit into 64 bits. "
                f"Received: {key}. Use str(key)."
            )
    return listed


def _key_error(owner: str, name: str, key: Any, where: str) -> ValueError:
    return ValueError(
        f"`{name}` of {owner} must be all text or all integers. Received: "
        f"{key!r}, a {type(key).__name__}{where}. Use str(key)."
    )


def column_of_keys(name: str, columns: Values) -> list[Any]:
    """The column that holds the keys of an index."""
    if name not in columns:
        raise ValueError(
            "`keys` of Index must be one key per row, or the name of a column. "
            f"Received: {name!r}. Available: {', '.join(columns) or 'none'}."
        )
    return columns[name]


def label_values(labels: Any) -> list[Any]:
    """Values of a column of labels: a class per row, or a list of classes."""
    if labels.ndim == 1:
        return list(labels.tolist())
    return [np.flatnonzero(row).tolist() for row in labels]


def checked_columns(columns: Columns | None, count: int) -> Values:
    """Validates columns of rows to be added, as lists of plain values."""
    items = as_columns(columns).items()
    return {name: _to_plain_list(name, x, count) for name, x in items}


def as_columns(columns: Any) -> Columns:
    """Columns by name, none by default; ValueError if they have no names."""
    if columns is None:
        return {}
    if hasattr(columns, "columns") and hasattr(columns, "isna"):
        return {name: columns[name] for name in columns.columns}
    if not isinstance(columns, Mapping):
        raise ValueError(
            "`columns` of an Index must map names of columns to values. "
            f"Received: a {type(columns).__name__}. Use for instance "
            '{"price": [5, 7]}.'
        )
    return columns


def parse_ids(ids: Sequence[int], end: int) -> Rows:
    """Ids as an array, (N,); ValueError unless they ascend below `end`."""
    is_whole = set(map(type, ids)) <= {int}
    if is_whole and (not ids or (min(ids) >= 0 and max(ids) < end)):
        array = np.array(ids, np.int64)
        if (np.diff(array) > 0).all():
            return array
    raise ValueError(f"ids do not ascend below {end}")


def _relocate(paths: list[Any], before: str, now: str) -> list[Any]:
    """Updates paths of files that were moved together with a folder."""

    @functools.cache
    def folders(folder: str) -> list[str]:
        # Usually none or one exists, so few files need to be looked up.
        try:
            relative = os.path.relpath(folder, before)
        except ValueError:  # On another drive, or of another system.
            return []
        moved = os.path.normpath(os.path.join(now, relative))
        return [x for x in (folder, moved) if os.path.isdir(x)]

    def follow(path: Any) -> Any:
        if not isinstance(path, str) or not os.path.isabs(path):
            return path
        folder, name = os.path.split(path)
        files = (os.path.join(x, name) for x in folders(folder))
        return next(filter(os.path.exists, files), path)

    return [follow(path) for path in paths]


def _to_plain_list(name: str, values: Iterable[Any], count: int) -> list[Any]:
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
    if hasattr(values, "isna"):  # pandas has missing values of its own.
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
    if (types := set(map(type, listed))) <= {*_PLAIN_TYPES} - {float}:
        whole = [x for x in listed if type(x) is int] if int in types else [0]
        if _fits(min(whole)) and _fits(max(whole)):
            return listed  # A million rows pass in milliseconds.
    for row, value in enumerate(listed):
        try:
            listed[row] = _to_json(value)
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
    """Whether an integer fits into 64 bits, as readers of the file expect."""
    return -(2**63) <= number < 2**64


def _to_json(value: Any) -> Any:
    """Converts a value to JSON's types; ValueError if that is impossible."""
    if type(value) is not float:
        value = to_plain(value)
    if isinstance(value, list | tuple | np.ndarray):
        return [_to_json(x) for x in value]
    if not isinstance(value, _PLAIN_TYPES):
        raise ValueError
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    if type(value) is int and not _fits(value):
        raise ValueError
    return value
