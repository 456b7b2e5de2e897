"""Gallery: the rows of an index with their vectors, built and searched."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_dml.embedding import EmbeddingShards
from keras_dml.search.engine import Engine, IndexSpec, inverted, make_index
from keras_dml.search.filters import Where
from keras_dml.search.recall import Recall, measure, take_rows
from keras_dml.search.rows import (
    Columns,
    Key,
    RowTable,
    Values,
    checked_columns,
    label_values,
)
from keras_dml.utils import progress
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows

_TRAINED_VECTORS = 256
"""Training vectors per list, or per value of a code, for faiss."""


class Gallery:
    """Rows with their vectors. An operation that raises changes nothing.

    Attributes:
        recall: How much the index missed when it was built; None if it is
            exact.
    """

    def __init__(
        self, engine: Engine, rows: RowTable, recall: Recall | None = None
    ) -> None:
        self.engine, self.rows, self.recall = engine, rows, recall
        self.metric, self.dim = engine.metric, engine.dim

    @classmethod
    def build(
        cls,
        embeddings: Any,
        columns: Columns | None,
        keys: Any,
        spec: IndexSpec,
    ) -> "Gallery":
        """Builds the gallery of an index and measures its recall; see `Index`.

        Embeddings, columns and keys are as the user passes them.
        """
        if isinstance(embeddings, EmbeddingShards):
            return cls._of_shards(embeddings, columns, keys, spec)
        x = spec.metric.embeddings(embeddings, None, "embeddings", "Index")
        # Before time is spent on training.
        values, row_keys = check_values(columns, keys, len(x))
        gallery = cls(Engine.trained(x, spec), RowTable.empty())
        if gallery.engine.is_exact:
            gallery.insert(x, values, row_keys)
            return gallery
        with progress.waiting(f"Fill {spec.factory} with {len(x):,} vectors"):
            ids = gallery.insert(x, values, row_keys)
            gallery.recall = measure(
                gallery.engine, lambda: iter([x.array]), ids
            )
        return gallery

    @classmethod
    def _of_shards(
        cls, shards: EmbeddingShards, columns: Any, keys: Any, spec: IndexSpec
    ) -> "Gallery":
        """A gallery that is trained on a sample and filled shard by shard."""
        _check_shards(shards, columns, keys)
        metric = spec.metric
        sample = _sample(shards, spec)
        x = metric.embeddings(sample, shards.dim, "embeddings", "Index")
        gallery = cls(Engine.trained(x, spec), RowTable.empty())
        gallery.engine.reserve(len(shards))
        adding = f"Add rows to {spec.factory}"
        with progress.throughput(len(shards), 0, "rows", adding, None) as count:
            for shard in shards:
                x = metric.embeddings(
                    shard.embeddings, None, "embeddings", "a shard"
                )
                labels = shard.labels
                classes = {} if labels is None else {
                    "label": label_values(labels)
                }  # fmt: skip
                values = checked_columns({**classes, **shard.columns}, len(x))
                is_id = keys in (None, "id")
                row_keys: Any = shard.ids if is_id else values[keys]
                gallery.insert(x, values, row_keys)
                count(len(x))
        if not gallery.engine.is_exact:

            def read() -> Iterator[FloatArray]:
                for part in shards.embeddings():
                    yield metric.embeddings(
                        part, None, "embeddings", "Index"
                    ).array

            gallery.recall = measure(gallery.engine, read, gallery.rows.ids)
        return gallery

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def vectors(self) -> FloatArray:
        """All vectors, (N, D), in the order of the ids."""
        return self.engine.vectors

    def insert(
        self, x: Embeddings, columns: Values, keys: list[Key] | None
    ) -> Rows:
        """Adds rows in place of those with the same keys; returns their ids."""
        known = self.rows.keys or {}
        old = np.array(sorted(known[x] for x in keys or [] if x in known), int)
        next_id = self.rows.next_id
        # Vectors first, as embeddings that are invalid raise here.
        self.engine.add(x, np.arange(next_id, next_id + len(x)))
        if len(old):
            self.remove(old)
        return self.rows.add(columns, len(x), keys)

    def remove(self, ids: Rows) -> None:
        """Removes rows; see `Engine.remove`."""
        self.engine.remove(ids)
        self.rows.remove(ids)

    def nearest(
        self, queries: FloatArray, k: int, where: Where | None = None
    ) -> tuple[FloatArray, Rows]:
        """The k nearest rows of each query; see `Engine.search`."""
        among = None if where is None else self.rows.where(where)
        return self.engine.search(queries, k, among)

    def above(
        self, queries: FloatArray, threshold: float, where: Where | None = None
    ) -> tuple[Rows, FloatArray, Rows]:
        """All rows whose scores reach a threshold; see `Engine.above`."""
        among = None if where is None else self.rows.where(where)
        return self.engine.above(queries, threshold, among)


def check_values(
    columns: Columns | None, keys: Any, count: int
) -> tuple[Values, list[Key] | None]:
    """Columns and keys that the user passes for `count` rows, validated."""
    values = checked_columns(columns, count)
    if isinstance(keys, str):
        keys = _column(keys, values)
    return values, RowTable.empty().new_keys(keys, count, "Index")


def _column(name: str, columns: Values) -> Any:
    """The column that holds the keys."""
    if name not in columns:
        raise ValueError(
            "`keys` of Index must be one key per row, or the name of a column. "
            f"Received: {name!r}. Available: {', '.join(columns) or 'none'}."
        )
    return columns[name]


def _check_shards(shards: EmbeddingShards, columns: Any, keys: Any) -> None:
    """ValueError if columns or keys do not fit embeddings in shards."""
    if columns is not None:
        raise ValueError(
            "`columns` of Index must not be given for EmbeddingShards, which "
            f"have their own. Received: {columns!r}. Use Index(shards.array(), "
            "columns) for others."
        )
    if not isinstance(keys, str | None):
        raise ValueError(
            "`keys` of Index must be the name of a column for EmbeddingShards, "
            f"by default the ids. Received: a {type(keys).__name__}."
        )
    if keys not in (None, "id"):
        labels = shards.labels
        known = {} if labels is None else {"label": label_values(labels)}
        column = _column(keys, {**known, **shards.columns})
        RowTable.empty().new_keys(column, len(shards), "Index")


def _sample(shards: EmbeddingShards, spec: IndexSpec) -> FloatArray:
    """Embeddings to train the index with, (n, D) float32."""
    index = make_index(shards.dim, spec)
    if index.is_trained:
        return np.empty((0, shards.dim), np.float32)
    lists = inverted(index)
    size = _TRAINED_VECTORS * max(_TRAINED_VECTORS, lists.nlist if lists else 0)
    drawn = np.random.default_rng(0).permutation(len(shards))[:size]
    return take_rows(shards.embeddings(), np.sort(drawn), shards.dim)
