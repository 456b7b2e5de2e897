"""Table: what a database must do to hold an index. An adapter is one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from keras_dml.search.gallery import Block
from keras_dml.search.keys import Key
from keras_dml.search.kinds import Kind
from keras_dml.search.state import State
from keras_dml.utils.types import FloatArray, Rows

Found = tuple[Rows, FloatArray, FloatArray]
"""Ids, (n,); rough scores, (n,), as inside of an index; vectors, (n, D)."""


Types = Mapping[str, set[type]]
"""Types of the values of each column, without that of None."""


class Table(ABC):
    """A table of a database, by its address. Text is in its language.

    What cannot be reached is an OSError, in seconds.

    Attributes:
        engine: What messages call the database.
        uri: The address, without what is secret.
        most: The largest number of rows that it returns.
        is_distance: Whether scores are negative distances.
        has_keys: Whether rows have own keys.
    """

    engine: str
    most: int
    is_distance = False
    has_keys = False

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __repr__(self) -> str:
        return self.uri

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a table of that name, anyone's."""

    @abstractmethod
    def create(self, state: State) -> None:
        """Makes the table, without rows."""

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
    def one_of(self, field: str, values: Sequence[Key]) -> str:
        """The expression that the "id" or "key" of a row is one of some."""

    @abstractmethod
    def expression(self, name: str, sign: str, wanted: Any, types: set) -> str:
        """The expression of one of `filters.conditions`.

        Args:
            name: A column.
            sign, wanted: As of `filters.conditions`.
            types: Types of the values in the column, without that of None.
        """

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
    def read(self, where: str, columns: Types, vectors: bool = False) -> Block:
        """The rows that pass an expression, at most `most`, in any order.

        Args:
            where: An expression.
            columns: Columns to read.
            vectors: Whether to read vectors; else they are (n, 0).
        """

    @abstractmethod
    def nearest(
        self, queries: FloatArray, k: int, where: str, kind: Kind, share: float
    ) -> list[Found]:
        """The k nearest rows of each query, or fewer.

        Args:
            queries: (Q, D) float32.
            k: How many, at the most `most`.
            where: An expression.
            kind: How to search: through all rows if it is exact.
            share: Share of the rows that pass.
        """

    @abstractmethod
    def within(
        self, query: FloatArray, bound: float, where: str, kind: Kind
    ) -> Found:
        """All rows whose rough scores with a query, (D,), exceed a bound.

        Raises:
            ValueError: If the database cannot find all.
        """

    @abstractmethod
    def build(self, kind: Kind) -> None:
        """Builds the index of vectors, if it is not there."""

    @abstractmethod
    def close(self) -> None:
        """Gives back connections."""


def first_line(error: Exception) -> str:
    """What an error of a database says, in short."""
    return str(error).strip().split("\n")[0][:300]
