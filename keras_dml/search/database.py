"""DatabaseGallery: the rows of an index in a table of a database.

It does what `LocalGallery` does in memory. The abstract methods are what
LanceDB and Milvus do differently: see lance.py and milvus.py.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.search.engine import EXACT, FLOAT32
from keras_dml.search.faiss_files import IndexFileError
from keras_dml.search.filters import (
    CONTAINS,
    ORDERS,
    Where,
    as_float,
    check_column,
    conditions,
)
from keras_dml.search.hits import NONE
from keras_dml.search.metrics import Metric
from keras_dml.search.rows import (
    Block,
    Key,
    RowTable,
    Values,
    as_keys,
    check_ids,
    check_kind,
    new_keys,
    types_of,
)
from keras_dml.search.state import TYPES, Kind, State
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

BATCH = 5000
"""Number of rows written at a time."""

NAMED = 1000
"""Number of rows named by one expression."""

_QUERIES = 100
"""Queries of one search."""

_NO_ROW = "id < 0"

_LARGEST = 2**63 - 1

_KINDS: dict[type, str] = {str: "text", list: "list"}


class DatabaseGallery(ABC):
    """Rows in a table of a database.

    Only one process may write at a time. What cannot be reached is an OSError,
    in seconds.

    Args:
        uri: The address, without what is secret. Also the attribute `store`.

    Attributes:
        engine: What messages call the database.
        most: The largest number of rows that it returns.
        state: What the table says of its index, after `use`.
        kind: The kind of index that it is.
    """

    engine: str
    most: int
    precision = FLOAT32
    state: State
    kind: Kind

    def __init__(self, uri: str) -> None:
        self.store = uri

    def use(self, state: State) -> None:
        """Sets what the table is known to be."""
        self.state = state
        self.metric = Metric(state.metric)
        self.kind = Kind.of(state.factory, state.parameters, self.engine)
        self.factory, self.parameters = state.factory, state.parameters
        self.dim, self.types = state.dim, state.types
        self.next_id = state.next_id
        self.names, self.has_keys = list(self.types), state.keys is not None
        self.is_exact = self.keeps_vectors = state.factory == EXACT

    def open(self) -> None:
        """Reads what the table says of its index.

        Raises:
            FileNotFoundError: If there is no table.
            OSError: If the database cannot be reached.
            ValueError: If it is damaged or incomplete, or not an index.
        """
        if not self.exists():
            raise FileNotFoundError(
                f"There is no index in {self.store}. Use `keras-dml push` or "
                "Index.push to write one."
            )
        text = self.read_state()
        if text is None:
            raise IndexFileError(
                f"{self.store} must be an index of keras_dml. Received: "
                "something else."
            )
        state = State.from_json(text, self.store)
        if not state.is_whole:
            raise IndexFileError(
                f"{self.store} must be complete. Received: an index whose push "
                "was started but did not finish. Push it again to continue."
            )
        self.use(state)

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a table of that name, anyone's."""

    @abstractmethod
    def create(self) -> None:
        """Makes the table that `state` is of, without rows."""

    @abstractmethod
    def drop(self) -> None:
        """Removes the table and its state."""

    @abstractmethod
    def read_state(self) -> str | None:
        """What `write_state` wrote; None if the table is somebody else's."""

    @abstractmethod
    def write_state(self, state: State) -> None:
        """Writes the state, after which the table has its columns.

        Raises:
            ValueError: If the table cannot have these columns. Nothing is
                changed in this case.
        """

    @abstractmethod
    def place(self, name: str) -> str:
        """How expressions call a column."""

    @abstractmethod
    def has_value(self, name: str) -> str:
        """The expression that a column has a value."""

    @abstractmethod
    def one_of(self, place: str, values: Sequence[Any]) -> str:
        """The expression that "id", "key" or a place is one of some values."""

    @abstractmethod
    def literal(self, value: Any) -> str:
        """Text, a number or a boolean as expressions have it."""

    @abstractmethod
    def count(self, where: str = "") -> int:
        """How many rows pass an expression; all pass an empty one."""

    @abstractmethod
    def append(self, block: Block) -> None:
        """Adds rows that are not there yet."""

    @abstractmethod
    def put(self, block: Block) -> None:
        """Adds rows, in place of those with the same keys, or ids without."""

    @abstractmethod
    def delete(self, where: str) -> None:
        """Removes the rows that pass an expression."""

    @abstractmethod
    def read(
        self, where: str, columns: bool = True, vectors: bool = False
    ) -> Block:
        """The rows that pass an expression, at most `most`, in any order."""

    @abstractmethod
    def search(
        self, queries: FloatArray, k: int, where: str, share: float
    ) -> list[tuple[Rows, FloatArray]]:
        """Ids and inner scores of the k nearest rows of each query, or fewer.

        Args:
            queries: (Q, D) float32.
            k: How many, at most `most`.
            where: An expression.
            share: Share of the rows that pass.
        """

    @abstractmethod
    def within(
        self, query: FloatArray, bound: float, where: str
    ) -> tuple[Rows, FloatArray]:
        """Ids and inner scores of all rows whose scores exceed a bound.

        Raises:
            ValueError: If the database cannot find all.
        """

    @abstractmethod
    def build(self) -> None:
        """Builds the index of vectors, if it is not there."""

    @abstractmethod
    def close(self) -> None:
        """Releases connections."""

    @property
    def vectors(self) -> FloatArray:
        """All vectors, (N, D), in the order of the ids."""
        none = np.empty((0, self.dim), np.float32)
        parts = (block.vectors for block in self.blocks(BATCH))
        return np.concatenate([none, *parts])

    def __len__(self) -> int:
        return self.count()

    def __contains__(self, key: object) -> bool:
        if isinstance(key, np.generic):
            key = key.item()
        if type(key) is not TYPES[self.state.keys or "int"]:
            return False
        return self.find([key], "Index") != [None]

    def check_keys(self, keys: Any, count: int, owner: str) -> list[Key] | None:
        """The keys of rows to write; see `new_keys`."""
        kind = TYPES[self.state.keys or "int"]
        return new_keys(keys, count, owner, self.has_keys, kind)

    def find(
        self, keys: Any, owner: str, name: str = "keys"
    ) -> list[int | None]:
        """Ids of the rows with these keys; None for keys that do not exist."""
        listed = as_keys(keys, owner, name)
        if self.state.keys:
            check_kind(TYPES[self.state.keys], listed, owner, name)
        else:
            check_ids(listed, owner, name)
        place = "key" if self.has_keys else "id"
        known: dict[Key, int] = {}
        for part in blocks(len(listed), NAMED):
            found = self.read(self.one_of(place, listed[part]), columns=False)
            ids = found.ids.tolist()
            known.update(zip(found.keys or ids, ids, strict=True))
        return [known.get(key) for key in listed]

    def table(self, ids: Rows | None = None) -> RowTable:
        """A table of the rows with these ids; KeyError if one is missing."""
        block = self.rows(ids, vectors=False)
        if ids is not None and len(block) < len(ids):
            missing = np.setdiff1d(ids, block.ids)[0]
            raise KeyError(f"There is no row {missing} in the index.")
        return RowTable(block.ids, block.columns, self.next_id, block.keys)

    def rows(self, ids: Rows | None = None, vectors: bool = True) -> Block:
        """The existing rows among some ids, or all of them, ascending."""
        where = self._ranges() if ids is None else self._named(ids)
        return self._joined(self.read(x, vectors=vectors) for x in where)

    def blocks(self, size: int) -> Iterator[Block]:
        """All rows in the order of ids, at most `size` at a time."""
        for where in self._ranges(size=size):
            if len(block := self.read(where, vectors=True)):
                yield self._joined([block])

    def where(self, where: Where) -> Rows:
        """Ids of the rows that pass a filter, ascending."""
        expressions = self._ranges(self._expression(where))
        parts = (self.read(x, columns=False).ids for x in expressions)
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    def stored(self, ids: Rows) -> FloatArray:
        """Vectors of some rows as they are stored, (n, D), in their order."""
        block = self.rows(np.sort(ids))
        return block.vectors[np.searchsorted(block.ids, ids)]

    def insert(
        self, x: Embeddings, columns: Values, keys: list[Key] | None
    ) -> Rows:
        """Adds rows with new keys and returns their ids, (n,)."""
        return self._add(x, columns, keys, self.append)

    def upsert(
        self, x: Embeddings, columns: Values, keys: list[Key] | None
    ) -> Rows:
        """Adds rows, replacing those with the same keys; returns their ids."""
        return self._add(x, columns, keys, self.put)

    def update(self, ids: Rows, columns: Values) -> None:
        """Sets values of rows, leaving other columns as they are."""
        self._refresh()
        self.record(columns)
        places = {row: i for i, row in enumerate(ids.tolist())}
        for where in self._named(ids):
            old = self.read(where, vectors=True)
            order = [places[row] for row in old.ids.tolist()]
            new = {n: [x[i] for i in order] for n, x in columns.items()}
            self.put(replace(old, columns={**old.columns, **new}))

    def remove(self, ids: Rows) -> None:
        """Removes rows."""
        self._refresh()
        self.record()
        for where in self._named(ids):
            self.delete(where)

    def keep_threshold(self, threshold: AnyThreshold | None) -> None:
        """Stores the score from which two images count as the same class."""
        self._refresh()
        self.record(threshold=threshold, source=self.state.source)

    def record(self, columns: Values | None = None, **changes: Any) -> None:
        """Writes the state with what is about to change."""
        if self.state.is_whole:  # It is no longer what was pushed.
            changes = {"source": "", **changes}
        state = self.state.with_types(types_of(columns or {}))
        new = replace(state, **changes)
        if new != self.state:
            self.write_state(new)
            self.use(new)

    def nearest(
        self, queries: FloatArray, k: int, where: Where | None = None
    ) -> tuple[FloatArray, Rows]:
        """The k nearest rows of each query; see `Engine.search`.

        Of rows with equal scores, the database chooses which are returned.
        """
        if k > self.most:
            raise ValueError(
                f"`k` of Index.search must be at most {self.most:,} in "
                f"{self.engine}. Received: k={k}. Use a smaller `k`, or an "
                "index in a folder or in LanceDB, which have no such limit."
            )
        scores = np.full((len(queries), k), -np.inf, np.float32)
        ids = np.full((len(queries), k), NONE)
        passing, share = self._expression(where), 1.0
        if passing and not self.is_exact:
            share = max(1, self.count(passing)) / max(1, len(self))
        for part in blocks(len(queries), _QUERIES):
            found = self.search(queries[part], k, passing, share)
            for row, (its_ids, inner) in enumerate(found, part.start):
                order = np.lexsort((its_ids, -inner))
                ids[row, : len(order)] = its_ids[order]
                scores[row, : len(order)] = self.metric.outer(inner[order])
        return scores, ids

    def above(
        self, queries: FloatArray, threshold: float, where: Where | None = None
    ) -> tuple[Rows, FloatArray, Rows]:
        """All rows whose scores reach a threshold; see `Engine.above`."""
        none = np.empty(0, np.int64)
        parts = [(none, np.empty(0, np.float32), none)]
        passing = self._expression(where)
        bound = self.metric.bound(threshold)
        bound -= 1e-6 * max(1, abs(bound))  # Scores are rounded.
        for row, query in enumerate(queries):
            ids, inner = self.within(query, bound, passing)
            scores = self.metric.outer(inner)
            hits = np.flatnonzero(scores.astype(np.float64) >= threshold)
            order = hits[np.lexsort((ids[hits], -scores[hits]))]
            parts.append((np.full(len(order), row), scores[order], ids[order]))
        which, scores, ids = map(np.concatenate, zip(*parts, strict=True))
        return which, scores, ids

    def _add(
        self,
        x: Embeddings,
        columns: Values,
        keys: list[Key] | None,
        write: Callable[[Block], None],
    ) -> Rows:
        self._refresh()
        first = self.next_id
        ids = np.arange(first, first + len(x))
        self.record(columns, next_id=first + len(x))
        rows = Block(ids, x.array, columns, keys)
        for part in blocks(len(rows), BATCH):
            write(rows.taken(part))
        return ids

    def _refresh(self) -> None:
        """Reads the state, which another process may have changed."""
        self.use(State.from_json(self.read_state() or "", self.store))

    def _ranges(self, passing: str = "", size: int = 2**20) -> Iterator[str]:
        """Expressions that together cover all rows, by id."""
        self._refresh()
        for part in blocks(self.next_id, min(size, self.most)):
            bounds = f"id >= {part.start} and id < {part.stop}"
            yield f"{bounds} and {passing}" if passing else bounds

    def _named(self, ids: Rows) -> Iterator[str]:
        """Expressions that select rows by id."""
        for part in blocks(len(ids), NAMED):
            yield self.one_of("id", ids[part].tolist())

    def _joined(self, parts: Iterable[Block]) -> Block:
        """Blocks as one, by ascending ids."""
        some = [x for x in parts if len(x)]
        some = some or [self.read(_NO_ROW, vectors=True)]
        ids = np.concatenate([x.ids for x in some])
        columns = {
            name: [value for x in some for value in x.columns[name]]
            for name in some[0].columns
        }
        keys = [key for x in some for key in x.keys or []]
        vectors = np.concatenate([x.vectors for x in some])
        whole = Block(ids, vectors, columns, keys if self.has_keys else None)
        return whole.taken(np.argsort(ids))

    def _expression(self, where: Where | None) -> str:
        """A filter in the database's language; empty if there is no filter."""
        if where is None:
            return ""
        if not isinstance(where, Mapping):
            raise ValueError(
                f"`where` of an Index in {self.engine} must be conditions by "
                f"column. Received: a {type(where).__name__}. Functions and "
                "masks require an index in a folder."
            )
        types = self.types

        def kinds(name: Any) -> frozenset[str]:
            check_column(name, types)
            return frozenset(_KINDS.get(x, "number") for x in types[name])

        return " and ".join(
            self._condition(name, sign, wanted, types[name])
            for name, sign, wanted in conditions(where, kinds)
        )

    def _condition(
        self, name: str, sign: str, wanted: Any, types: set[type]
    ) -> str:
        """One of `filters.conditions`, for a column of some types."""
        if sign == CONTAINS:
            raise ValueError(
                "`where` of an Index in a database must use one of ==, !=, in, "
                "not in, <, <=, > and >=. Received: 'contains' for the column "
                f"{name!r}. Use an index in a folder to search in lists."
            )
        if sign not in ORDERS:
            same = self._equal(name, wanted, types)
            return same if sign == "==" else f"(not {same})"
        is_text = isinstance(wanted, str)
        types = types & ({str} if is_text else {bool, int, float})
        if not types:
            return _NO_ROW
        if types == {bool}:
            passing = [x for x in (False, True) if ORDERS[sign](x, wanted)]
            return self._equal(name, passing, types)
        if not is_text:
            wanted = (
                as_float(wanted) if float in types else _whole(wanted, sign)
            )
        return f"{self.place(name)} {sign} {self.literal(wanted)}"

    def _equal(self, name: str, wanted: list[Any], types: set[type]) -> str:
        """That the value of a column is one of several."""
        for value in wanted:
            if isinstance(value, list | tuple):
                raise ValueError(
                    "`where` of an Index in a database must compare with text, "
                    f"numbers, booleans or None. Received: {value!r} for the "
                    f"column {name!r}. Use an index in a folder to compare "
                    "lists."
                )
        has_one = self.has_value(name)
        parts = [f"not ({has_one})"] if None in wanted else []
        stored = [_stored(x, types) for x in wanted]
        if values := [x for x in stored if x is not None]:
            same = self.one_of(self.place(name), values)
            parts.append(f"({has_one} and {same})")
        return f"({' or '.join(parts) or _NO_ROW})"


def _stored(value: Any, types: set[type]) -> Any:
    """A value as a column of some types has it; None if it cannot be there."""
    if value is None or isinstance(value, str):
        return value if str in types else None
    if not types & {bool, int, float}:
        return None
    if float in types:
        return as_float(value)
    if int in types:
        is_there = abs(value) <= _LARGEST and value == int(value)
        return int(value) if is_there else None
    return bool(value) if value in (0, 1) else None


def _whole(value: float, sign: str) -> int:
    """The integer of 64 bits that integers compare with as with a number."""
    value = min(max(value, -_LARGEST), _LARGEST)
    return math.ceil(value) if sign in ("<", ">=") else math.floor(value)


def first_line(error: Exception | str) -> str:
    """What an error of a database says, in short."""
    return str(error).strip().split("\n")[0][:300]
