"""IndexedRows: vectors and their rows, kept in step."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_dml.search import faiss_types, recall
from keras_dml.search.engine import Engine
from keras_dml.search.hits import NONE
from keras_dml.search.rows import Columns, RowTable
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.unit_embeddings import UnitEmbeddings


class IndexedRows:
    """A faiss index and a table, whose rows have the same ids.

    Args:
        engine: The vectors.
        table: The rows; vectors that have none are hidden.
        factory: The factory string of the faiss index.
        parameters: How thoroughly it searches, as faiss calls it.
        recall: What it misses; None for exact ones.
    """

    def __init__(
        self,
        engine: Engine,
        table: RowTable,
        factory: str,
        parameters: str,
        recall: "recall.Recall | None" = None,
    ) -> None:
        self.engine = engine
        self.table = table
        self.factory = factory
        self.parameters = parameters
        self.recall = recall

    @classmethod
    def of(
        cls,
        x: UnitEmbeddings,
        columns: Columns,
        factory: str,
        parameters: str | None,
    ) -> "IndexedRows":
        """Indexes vectors, (N, D), and their rows; see `Index`."""
        table = RowTable()
        # Before time is spent on training.
        values = table.check(columns, len(x))
        engine = Engine.trained(x, factory)
        parameters = faiss_types.set_parameters(engine.index, parameters)
        indexed = cls(engine, table, factory, parameters)
        ids = indexed._insert(x, values)
        if not engine.is_exact:
            indexed.recall = recall.measure(engine, x.array, ids)
        return indexed

    def add(self, x: UnitEmbeddings, columns: Columns) -> Rows:
        """Adds rows; see `Index.add`."""
        return self._insert(x, self.table.check(columns, len(x)))

    def _insert(self, x: UnitEmbeddings, values: dict[str, list[Any]]) -> Rows:
        next_id = self.table.next_id
        # It may refuse, and nothing must have been added then.
        self.engine.add(x, np.arange(next_id, next_id + len(x)))
        return self.table.add(values, len(x))

    def remove(self, ids: Any) -> None:
        """Removes rows, or hides their vectors; see `Index.remove`."""
        chosen = np.unique(np.atleast_1d(np.asarray(ids, np.int64)))
        known = np.isin(chosen, self.table.ids)
        if not known.all():
            raise KeyError(
                "`ids` of Index.remove must be ids of rows. Received: "
                f"{int(chosen[~known][0])}, which is not there."
            )
        if not (
            self.engine.remove(chosen)
            or faiss_types.can_select(self.engine.index)
        ):
            raise ValueError(
                "`factory` of an Index must allow to remove rows. Received: "
                f"factory={self.factory!r}, which does not. Build the index "
                "again without those rows."
            )
        self.table.remove(chosen)

    @property
    def hidden(self) -> Rows:
        """Ids of the vectors that were to be removed, and could not be."""
        if len(self.engine) == len(self.table):
            return np.empty(0, np.int64)
        return np.setdiff1d(self.engine.ids, self.table.ids)

    def search(
        self, x: FloatArray, k: int, where: Mapping[str, Any] | None
    ) -> tuple[FloatArray, Rows]:
        """Scores and ids of the k nearest rows; see `Engine.search`."""
        among = None
        if where is not None:
            among = self.table.where(where)
        elif len(self.engine) != len(self.table):
            among = self.table.ids
        return self.engine.search(x, k, among)

    def search_others(
        self,
        x: FloatArray,
        k: int,
        where: Mapping[str, Any] | None,
        exclude: Any,
    ) -> tuple[FloatArray, Rows]:
        """The same without one row for each query; see `Index.search`."""
        own = np.atleast_1d(np.asarray(exclude))
        if own.dtype.kind not in "iu" or own.shape != (len(x),):
            raise ValueError(
                "`exclude` of Index.search must be one id for each query. "
                f"Received: exclude of shape {own.shape} and dtype "
                f"{own.dtype} for {len(x)} queries."
            )
        scores, ids = self.search(x, k + 1, where)
        is_own = ids == own[:, None]
        scores[is_own], ids[is_own] = -np.inf, NONE
        # Last, and the others keep their order.
        order = np.argsort(is_own, axis=1, kind="stable")[:, :k]
        return (
            np.take_along_axis(scores, order, 1),
            np.take_along_axis(ids, order, 1),
        )
