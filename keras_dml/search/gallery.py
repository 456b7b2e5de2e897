"""Gallery: what keeps the rows of an index with their vectors, and finds them.

An `Index` is the same over each: in memory by faiss (`LocalGallery`), or in a
database (`DatabaseGallery`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.search.filters import Where
from keras_dml.search.keys import Key
from keras_dml.search.metrics import Metric
from keras_dml.search.rows import RowTable
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows

Values: TypeAlias = dict[str, list[Any]]
"""Plain values by column, one for each row."""


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows: what a database takes and returns at a time.

    Attributes:
        ids: Their ids, (n,).
        vectors: As they are compared, (n, D) float32.
        columns: Plain values by column, n each.
        keys: Own keys, n; None if rows go by their ids.
    """

    ids: Rows
    vectors: FloatArray
    columns: Values
    keys: list[Key] | None

    def __len__(self) -> int:
        return len(self.ids)


class Gallery(ABC):
    """Rows with vectors. What is refused changes nothing.

    Attributes:
        metric: How vectors are compared.
        factory: The kind of index.
        parameters: How thoroughly it searches.
        store: The address of a database; None for memory.
    """

    store: str | None = None
    metric: Metric
    factory: str
    parameters: str

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimensions of the vectors, D."""

    @property
    @abstractmethod
    def is_exact(self) -> bool:
        """Whether a search compares all vectors, as they are."""

    @property
    @abstractmethod
    def has_keys(self) -> bool:
        """Whether rows have own keys."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """Names of the columns."""

    @property
    @abstractmethod
    def types(self) -> Mapping[str, set[type]]:
        """Types of the values of each column, without that of None."""

    @property
    @abstractmethod
    def vectors(self) -> FloatArray:
        """All vectors, (N, D), in the order of the ids.

        Raises:
            ValueError: If they are not kept as they were.
        """

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows, N."""

    @abstractmethod
    def __contains__(self, key: object) -> bool:
        """Whether there is a row with a key."""

    @abstractmethod
    def check_keys(self, keys: Any, count: int, owner: str) -> list[Key] | None:
        """The keys of rows to be written; see `RowTable.check_keys`."""

    @abstractmethod
    def find(
        self, keys: Any, owner: str, name: str = "keys"
    ) -> list[int | None]:
        """Ids of the rows with some keys; None where there is no such row."""

    @abstractmethod
    def table(self, ids: Rows | None = None) -> RowTable:
        """A table that has the rows with some ids; by default all rows."""

    @abstractmethod
    def where(self, where: Where) -> Rows:
        """Ids of the rows that pass a filter, ascending."""

    @abstractmethod
    def blocks(self, size: int) -> Iterator[Block]:
        """All rows in the order of ids, at most `size` at a time."""

    @abstractmethod
    def insert(
        self, x: Embeddings, columns: Values, keys: list[Key] | None
    ) -> Rows:
        """Adds rows, with keys that are new; says their ids, (n,)."""

    @abstractmethod
    def upsert(
        self, x: Embeddings, columns: Values, keys: list[Key] | None
    ) -> Rows:
        """Adds rows, in place of those with the same keys; says their ids."""

    @abstractmethod
    def update(self, ids: Rows, columns: Values) -> None:
        """Replaces values of rows; other columns stay as they are."""

    @abstractmethod
    def remove(self, ids: Rows) -> None:
        """Removes rows."""

    @abstractmethod
    def nearest(
        self, queries: FloatArray, k: int, where: Where | None = None
    ) -> tuple[FloatArray, Rows]:
        """The k nearest rows of each query, as `Hits` has them.

        Args:
            queries: As vectors are compared, (Q, D) float32.
            k: How many; where there are fewer, scores are -inf and ids -1.
            where: Which rows to search.

        Returns:
            Scores, (Q, k) float32, and ids, (Q, k).
        """

    @abstractmethod
    def above(
        self, queries: FloatArray, threshold: float, where: Where | None = None
    ) -> tuple[Rows, FloatArray, Rows]:
        """All rows whose scores reach a threshold, by query.

        Returns:
            Queries, scores and ids, (n,) each, ordered as by `nearest`.
        """

    @abstractmethod
    def keep_threshold(self, threshold: AnyThreshold | None) -> None:
        """Keeps the score from which a hit counts as a match."""

    @abstractmethod
    def stored(self, ids: Rows) -> FloatArray:
        """Vectors of some rows as they are stored, (n, D), in their order.

        Raises:
            ValueError: If this kind of index does not give them back.
        """

    def close(self) -> None:  # noqa: B027
        """Gives back what holds connections or files."""


def joined_types(
    known: Mapping[str, Sequence[str]], columns: Values
) -> dict[str, tuple[str, ...]]:
    """Names of types by column, with those of further values."""
    types = {name: set(names) for name, names in known.items()}
    for name, values in columns.items():
        found = {x.__name__ for x in set(map(type, values)) - {type(None)}}
        types[name] = types.get(name, set()) | found
    return {name: tuple(sorted(found)) for name, found in types.items()}


def joined(
    parts: Sequence[Block], names: Sequence[str], has_keys: bool
) -> Block:
    """Blocks as one, by ascending ids."""
    parts = [x for x in parts if len(x)]
    ids = np.concatenate([np.empty(0, np.int64), *(x.ids for x in parts)])
    order = np.argsort(ids)
    vectors = [x.vectors for x in parts] or [np.empty((0, 0), np.float32)]

    def ordered(lists: list[list[Any]]) -> list[Any]:
        values = [value for some in lists for value in some]
        return [values[i] for i in order.tolist()]

    return Block(
        ids[order],
        np.concatenate(vectors)[order],
        {name: ordered([x.columns[name] for x in parts]) for name in names},
        ordered([x.keys or [] for x in parts]) if has_keys else None,
    )
