"""DatabaseRows: rows and vectors in a table of a database."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.search.gallery import (
    Block,
    Gallery,
    Values,
    joined,
    joined_types,
)
from keras_dml.search.keys import (
    Key,
    Keys,
    as_keys,
    check_given,
    check_ids,
    check_kind,
    new_keys,
)
from keras_dml.search.kinds import Kind
from keras_dml.search.metrics import Metric
from keras_dml.search.rows import RowTable
from keras_dml.search.state import State
from keras_dml.search.table import Table, Types
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, row_norms

NAMED = 1000
"""Number of rows named by one expression."""

WRITTEN = 5000
"""Number of rows written at a time."""

_KINDS: dict[type, str] = {str: "text", list: "list"}


class DatabaseRows(Gallery):
    """Rows in a database, for reading and writing.

    Only one process may write at a time. Each change is recorded in the state
    before and after, which reveals a second writer.

    Args:
        table: The table.
        state: The state stored with the table; also an attribute.
    """

    def __init__(self, table: Table, state: State) -> None:
        self.place = table
        self.store = table.uri
        self.state = state
        self.metric = Metric(state.metric)
        table.is_distance = self.metric.is_distance
        table.has_keys = state.keys is not None
        self.kind = Kind.of(state.factory, state.parameters, table.engine)
        self.factory = state.factory
        self.parameters = self.kind.parameters

    @property
    def dim(self) -> int:
        """Dimensions of the vectors, D."""
        return self.state.dim

    @property
    def is_exact(self) -> bool:
        """Whether a search compares all vectors."""
        return self.kind.is_exact

    @property
    def has_keys(self) -> bool:
        """Whether rows have keys of their own."""
        return self.state.keys is not None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.state.columns)

    @property
    def types(self) -> Mapping[str, set[type]]:
        """Types of the values of each column, not counting None."""
        return self.state.types

    @property
    def vectors(self) -> FloatArray:
        """All vectors, (N, D), in the order of the ids."""
        parts = [block.vectors for block in self.blocks(WRITTEN)]
        none = np.empty((0, self.dim), np.float32)
        return np.concatenate([none, *parts])

    def __len__(self) -> int:
        return self.place.count()

    def __contains__(self, key: object) -> bool:
        expected = self.state.key_type or int
        if isinstance(key, np.generic):
            key = key.item()
        if type(key) is not expected:
            return False
        return self.find([key], "Index") != [None]

    def check_keys(self, keys: Any, count: int, owner: str) -> list[Key] | None:
        """The keys of rows to write; see `RowTable.check_keys`."""
        if not check_given(keys, owner, self.has_keys, is_empty=False):
            return None
        return new_keys(keys, count, owner, self.state.key_type)

    def find(
        self, keys: Any, owner: str, name: str = "keys"
    ) -> list[int | None]:
        """Ids of the rows with these keys; None for keys that do not exist."""
        listed = as_keys(keys, owner, name)
        if self.has_keys:
            check_kind(self.state.key_type, listed, owner, name)
        else:
            check_ids(listed, owner, name)
        known: dict[Key, int] = {}
        for part in blocks(len(listed), NAMED):
            field = "key" if self.has_keys else "id"
            where = self.place.one_of(field, listed[part])
            found = self.place.read(where, {})
            ids = found.ids.tolist()
            known.update(zip(found.keys or ids, ids, strict=True))
        return [known.get(key) for key in listed]

    def table(self, ids: Rows | None = None) -> RowTable:
        """A table of the rows with these ids; KeyError if one is missing."""
        if ids is None:
            parts = list(self._read(self._ranges(""), self.types))
        else:
            parts = list(self._read(self._named(ids), self.types))
        block = joined(parts, self.names, self.has_keys)
        if ids is not None and len(block) < len(ids):
            missing = np.setdiff1d(ids, block.ids)[0]
            raise KeyError(f"There is no row {missing} in the index.")
        rows = RowTable()
        rows.ids, rows.columns = block.ids, block.columns
        rows.next_id = self.state.next_id
        if block.keys is not None:
            rows.keys = Keys(block.keys, block.ids)
        return rows

    def blocks(self, size: int) -> Iterator[Block]:
        """All rows in the order of ids, at most `size` at a time."""
        ranges = self._ranges("", min(size, self.place.most))
        for block in self._read(ranges, self.types, vectors=True):
            if len(block):
                yield joined([block], self.names, self.has_keys)

    def insert(
        self, x: Embeddings, columns: Values, keys: list[Key] | None
    ) -> Rows:
        """Adds rows with new keys and returns their ids, (n,)."""
        return self._add(x, columns, keys, self.place.append)

    def upsert(
        self, x: Embeddings, columns: Values, keys: list[Key] | None
    ) -> Rows:
        """Adds rows, replacing those with the same keys; returns their ids."""
        return self._add(x, columns, keys, self.place.put)

    def update(self, ids: Rows, columns: Values) -> None:
        """Sets values of rows, leaving other columns as they are."""
        with self._writing(columns):
            found = self._read(self._named(ids), self.types, vectors=True)
            for old in found:
                places = {row: i for i, row in enumerate(ids.tolist())}
                order = [places[row] for row in old.ids.tolist()]
                new = {n: [x[i] for i in order] for n, x in columns.items()}
                values = {**old.columns, **new}
                self.place.put(Block(old.ids, old.vectors, values, old.keys))

    def remove(self, ids: Rows) -> None:
        """Removes rows."""
        with self._writing({}):
            for where in self._named(ids):
                self.place.delete(where)

    def stored(self, ids: Rows) -> FloatArray:
        """Vectors of some rows; see `Gallery.stored`."""
        block = self.rows(np.sort(ids))
        return block.vectors[np.searchsorted(block.ids, ids)]

    def keep_threshold(self, threshold: AnyThreshold | None) -> None:
        """Stores the score from which two images count as the same class."""
        source = self.state.source
        with self._writing({}, threshold=threshold, source=source):
            pass

    def close(self) -> None:
        """Closes connections."""
        self.place.close()

    def rows(self, ids: Rows) -> Block:
        """The existing rows among these ids, ascending."""
        parts = self._read(self._named(ids), self.types, vectors=True)
        return joined(list(parts), self.names, self.has_keys)

    def ids_between(self, first: int, end: int) -> Rows:
        """Ids of the rows in a half-open range."""
        found = self.place.read(f"id >= {first} and id < {end}", {})
        return found.ids

    def begin(self) -> None:
        """Records that this process is now writing the rows of a push."""
        with self._writing({}):
            pass

    def fill(self, block: Block, longest: float) -> None:
        """Writes rows of a push, which keep their ids."""
        self._check_writer("Rows are missing.")
        types = joined_types(self.state.columns, block.columns)
        longest = max(longest, self.state.longest)
        if (types, longest) != (self.state.columns, self.state.longest):
            self._change(columns=types, longest=longest)
        self.place.put(block)

    def finish(self) -> None:
        """Records that all rows of a push are written."""
        self._check_writer("The push is not finished.")
        self._change(is_whole=True)

    def _write(self, block: Block, put: Callable[[Block], None]) -> None:
        """Writes any number of rows, in batches."""
        for part in blocks(len(block), WRITTEN):
            columns = {name: x[part] for name, x in block.columns.items()}
            keys = None if block.keys is None else block.keys[part]
            few = Block(block.ids[part], block.vectors[part], columns, keys)
            put(few)

    def _add(
        self,
        x: Embeddings,
        columns: Values,
        keys: list[Key] | None,
        put: Callable[[Block], None],
    ) -> Rows:
        vectors = x.array
        first = self.state.next_id
        ids = np.arange(first, first + len(x))
        longest = max(self.state.longest, row_norms(vectors).max(initial=0))
        reserved = {"next_id": first + len(x), "longest": float(longest)}
        with self._writing(columns, **reserved):
            self._write(Block(ids, vectors, columns, keys), put)
        return ids

    @contextlib.contextmanager
    def _writing(self, columns: Values, **changes: Any) -> Iterator[None]:
        """Records in the state what the block is about to change."""
        self._check_writer("Nothing was written.")
        types = joined_types(self.state.columns, columns)
        # What is changed after a push is no longer what was pushed.
        source = "" if self.state.is_whole else self.state.source
        self._change(**{"columns": types, "source": source, **changes})
        yield
        self._check_writer(
            "Both wrote at the same time, so rows of either may be missing. "
            "Use Index.upsert to write them again."
        )

    def _change(self, **changes: Any) -> None:
        new = self.state.changed(**changes)
        self.place.write_state(new)
        self.state = new

    def _check_writer(self, outcome: str) -> None:
        """OSError if another process has written to the table."""
        text = self.place.read_state()
        found = State.from_json(text or "", repr(self.place))
        if found.version != self.state.version:
            raise OSError(
                f"{self.place} must only be written by one process at a time. "
                "Received: a change after another process had made one. "
                f"{outcome} Use open_index to continue from its current state."
            )

    def _ranges(self, passing: str, size: int = 0) -> Iterator[str]:
        """Expressions that together cover all rows, by id."""
        size = size or min(self.place.most, 2**20)
        for part in blocks(self.state.next_id, size):
            bounds = f"id >= {part.start} and id < {part.stop}"
            yield f"{bounds} and {passing}" if passing else bounds

    def _named(self, ids: Rows) -> Iterator[str]:
        """Expressions that select rows by id."""
        for part in blocks(len(ids), NAMED):
            yield self.place.one_of("id", ids[part].tolist())

    def _read(
        self,
        expressions: Iterator[str],
        columns: Types,
        vectors: bool = False,
    ) -> Iterator[Block]:
        for where in expressions:
            yield self.place.read(where, columns, vectors)
