"""RowTable: what is known of the images of an index."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.utils.types import Rows

Columns = Mapping[str, Sequence[Any]]

_PLAIN = (str, int, float, bool, list, type(None))

_NEVER_NAN = {str, int, bool, type(None)}


class RowTable:
    """Columns of plain values, each row with an id that stays its own.

    Ids count up from 0 and are never given again.

    Attributes:
        ids: Ids of the rows, ascending, (N,).
        columns: Values by column, each a list of N.
        next_id: The id of the next row that is added.
    """

    def __init__(self) -> None:
        self.ids: Rows = np.empty(0, np.int64)
        self.columns: dict[str, list[Any]] = {}
        self.next_id = 0

    def __len__(self) -> int:
        return len(self.ids)

    def check(self, columns: Columns, count: int) -> dict[str, list[Any]]:
        """The columns of rows to be added, as lists of plain values."""
        return {k: _as_plain(k, v, count) for k, v in columns.items()}

    def add(self, columns: dict[str, list[Any]], count: int) -> Rows:
        """Adds rows; says their ids. Columns that rows lack are None there."""
        for name in columns:
            self.columns.setdefault(name, [None] * len(self))
        for name, values in self.columns.items():
            values.extend(columns.get(name, [None] * count))
        ids = np.arange(self.next_id, self.next_id + count)
        self.ids = np.concatenate([self.ids, ids])
        self.next_id += count
        return ids

    def remove(self, ids: Rows) -> None:
        """Removes rows."""
        kept = ~np.isin(self.ids, ids)
        rows = np.flatnonzero(kept).tolist()
        self.ids = self.ids[kept]
        for name, values in self.columns.items():
            self.columns[name] = [values[row] for row in rows]

    def row(self, row_id: int) -> dict[str, Any]:
        """The values of a row by column."""
        position = int(np.searchsorted(self.ids, row_id))
        if position == len(self) or self.ids[position] != row_id:
            raise KeyError(f"There is no row {row_id} in the index.")
        return {name: x[position] for name, x in self.columns.items()}

    def where(self, conditions: Mapping[str, Any]) -> Rows:
        """Ids of the rows whose columns have values; see `Index.search`."""
        kept = np.ones(len(self), bool)
        for name, wanted in conditions.items():
            if name not in self.columns:
                raise ValueError(
                    "`where` of Index.search must name columns of the index. "
                    f"Received: {name!r}. There are: "
                    f"{', '.join(self.columns) or 'none'}."
                )
            values = wanted if isinstance(wanted, list | tuple) else [wanted]
            kept &= [x in values for x in self.columns[name]]
        return self.ids[kept]

    def write(self, path: Path) -> None:
        """Writes the rows, column by column, as JSON."""
        content: dict[str, Any] = {"columns": self.columns}
        # Where no row was removed, they are all ids that were given.
        if len(self) != self.next_id:
            content["ids"] = self.ids.tolist()
        # One call of `dumps` is several times as fast as `dump`.
        path.write_text(json.dumps(content, allow_nan=False), encoding="ascii")

    @classmethod
    def read(cls, path: Path, count: int, next_id: int) -> "RowTable":
        """The rows that `write` wrote; ValueError if they do not fit."""
        content = json.loads(path.read_text(encoding="ascii"))
        columns = content.get("columns") if isinstance(content, dict) else None
        if not isinstance(columns, dict) or not all(
            isinstance(values, list) for values in columns.values()
        ):
            raise ValueError("it has no columns")
        table = cls()
        ids = content.get("ids")
        if isinstance(ids, list) and len(ids) == count:
            table.ids = ascending(ids, next_id)
        elif ids is None and count == next_id:
            table.ids = np.arange(count, dtype=np.int64)
        else:
            raise ValueError(f"it has not the ids of {count} rows")
        table.columns = table.check(columns, count)
        table.next_id = next_id
        return table


def ascending(ids: Sequence[int], end: int) -> Rows:
    """Ids as an array, (N,); ValueError if they do not ascend below `end`."""
    is_whole = set(map(type, ids)) <= {int}
    if is_whole and (not ids or (min(ids) >= 0 and max(ids) < end)):
        array = np.array(ids, np.int64)
        if (np.diff(array) > 0).all():
            return array
    raise ValueError(f"ids do not ascend below {end}")


def _as_plain(name: str, values: Iterable[Any], count: int) -> list[Any]:
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if len(listed) != count:
        raise ValueError(
            "`columns` of an Index must have one value for each row. "
            f"Received: {len(listed)} values in the column {name!r} and "
            f"{count} rows."
        )
    if set(map(type, listed)) <= _NEVER_NAN:
        return listed  # A million rows pass in milliseconds.
    listed = [x.item() if isinstance(x, np.generic) else x for x in listed]
    for row, value in enumerate(listed):
        # NaN, unequal to itself, is not JSON.
        if not isinstance(value, _PLAIN) or value != value:
            raise ValueError(
                "`columns` of an Index must hold text, numbers, booleans or "
                f"None. Received: {value!r} in row {row} of the column "
                f"{name!r}. Use None for what is not known."
            )
    return listed
