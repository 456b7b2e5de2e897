"""Gallery: what keeps the rows of an index with their vectors, and finds them.

In memory it is a `LocalGallery`, which faiss searches; in a database a
`DatabaseGallery`, with the same methods.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.search.database import DatabaseGallery
from keras_dml.search.engine import EXACT, Engine
from keras_dml.search.filters import Where
from keras_dml.search.rows import Block, Key, RowTable, Values
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks


class LocalGallery:
    """Rows in memory. What is refused changes nothing.

    Args:
        engine: Finds vectors.
        rows: Columns and keys of the rows.
    """

    store: str | None = None

    def __init__(self, engine: Engine, rows: RowTable) -> None:
        self.engine = engine
        self.rows = rows
        self.metric = engine.metric
        self.dim, self.is_exact = engine.dim, engine.is_exact
        self.factory = engine.factory
        self.parameters = engine.parameters

    @property
    def has_keys(self) -> bool:
        """Whether rows have own keys."""
        return self.rows.keys is not None

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.rows.columns)

    @property
    def types(self) -> Mapping[str, set[type]]:
        """Types of the values of each column, without that of None."""
        columns = self.rows.columns.items()
        return {name: set(map(type, x)) - {type(None)} for name, x in columns}

    @property
    def next_id(self) -> int:
        """The id of the next row that is added."""
        return self.rows.next_id

    @property
    def vectors(self) -> FloatArray:
        """All vectors, (N, D), where faiss has them."""
        if not self.is_exact:
            raise ValueError(
                f"`factory` of an Index must be {EXACT!r} to read its "
                f"embeddings. Received: factory={self.factory!r}, which does "
                "not keep them unchanged."
            )
        return self.engine.vectors

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, key: object) -> bool:
        keys = self.rows.keys
        if keys is not None:
            return key in keys
        return isinstance(key, int | np.integer) and key in self.rows.ids

    def check_keys(self, keys: Any, count: int, owner: str) -> list[Key] | None:
        """The keys of rows to be written; see `RowTable.check_keys`."""
        return self.rows.check_keys(keys, count, owner)

    def find(
        self, keys: Any, owner: str, name: str = "keys"
    ) -> list[int | None]:
        """Ids of the rows with some keys; None where there is no such row."""
        return self.rows.find(keys, owner, name)

    def table(self, ids: Rows | None = None) -> RowTable:
        """The table of all rows."""
        return self.rows

    def where(self, where: Where) -> Rows:
        """Ids of the rows that pass a filter, ascending."""
        return self.rows.where(where)

    def blocks(self, size: int) -> Iterator[Block]:
        """All rows in the order of ids, at most `size` at a time."""
        rows, vectors = self.rows, self.vectors
        keys = rows.keys_of(rows.ids) if self.has_keys else None
        whole = Block(rows.ids, vectors, rows.columns, keys)
        for part in blocks(len(rows), size):
            yield whole.taken(part)

    def insert(
        self, x: Embeddings, columns: Values, keys: list[Key] | None
    ) -> Rows:
        """Adds rows, with keys that are new; says their ids, (n,)."""
        self._add_vectors(x)
        return self.rows.add(columns, len(x), keys)

    def upsert(
        self, x: Embeddings, columns: Values, keys: list[Key] | None
    ) -> Rows:
        """Adds rows, in place of those with the same keys; says their ids."""
        old = self.rows.ids_known(keys or [])
        if len(old):
            self.engine.removes()
        # What is not embeddings is refused before anything is changed.
        self._add_vectors(x)
        self.rows.remove(old)
        ids = self.rows.add(columns, len(x), keys)
        if len(old):
            self.engine.remove(old)
        return ids

    def update(self, ids: Rows, columns: Values) -> None:
        """Replaces values of rows; other columns stay as they are."""
        self.rows.update(ids, columns)

    def remove(self, ids: Rows) -> None:
        """Removes rows; vectors that faiss cannot remove are hidden."""
        self.engine.remove(ids)
        self.rows.remove(ids)

    def nearest(
        self, queries: FloatArray, k: int, where: Where | None = None
    ) -> tuple[FloatArray, Rows]:
        """The k nearest rows of each query; see `Engine.search`."""
        return self.engine.search(queries, k, self._among(where), len(self))

    def above(
        self, queries: FloatArray, threshold: float, where: Where | None = None
    ) -> tuple[Rows, FloatArray, Rows]:
        """All rows whose scores reach a threshold; see `Engine.above`."""
        return self.engine.above(queries, threshold, self._among(where))

    def keep_threshold(self, threshold: AnyThreshold | None) -> None:
        """Nothing: `Index.save` writes it with the rest."""

    def stored(self, ids: Rows) -> FloatArray:
        """Vectors of some rows; see `Engine.stored`."""
        return self.engine.stored(ids)

    def _among(self, where: Where | None) -> Rows | None:
        """Ids of the rows to search; None for all vectors."""
        if where is not None:
            return self.rows.where(where)
        is_whole = len(self.engine) == len(self.rows)
        return None if is_whole else self.rows.ids

    def _add_vectors(self, x: Embeddings) -> None:
        """Adds vectors by the next ids; it may refuse, and adds none then."""
        next_id = self.rows.next_id
        self.engine.add(x, np.arange(next_id, next_id + len(x)))

    def close(self) -> None:
        """Nothing: there are no connections."""


Gallery: TypeAlias = LocalGallery | DatabaseGallery
