"""The gallery of an index of EmbeddingShards, filled shard by shard."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_dml.embedding import EmbeddingShards
from keras_dml.search.engine import Engine, IndexSpec, inverted, make_index
from keras_dml.search.recall import Recall, measure, take_rows
from keras_dml.search.rows import (
    LABEL,
    RowTable,
    Values,
    checked_columns,
    column_of_keys,
    label_values,
)
from keras_dml.utils.progress import throughput
from keras_dml.utils.types import FloatArray

_TRAINED_VECTORS = 256
"""Training vectors per list, or per value of a code, for faiss."""


def fill_from_shards(
    shards: EmbeddingShards, columns: Any, keys: Any, spec: IndexSpec
) -> tuple[Engine, RowTable, Recall | None]:
    """Trains an engine on a sample of shards, and fills it; see `Index`."""
    _check(shards, columns, keys)
    metric = spec.metric
    sample = _sample(shards, spec)
    x = metric.embeddings(sample, shards.dim, "embeddings", "Index")
    engine, rows = Engine.trained(x, spec), RowTable.empty()
    engine.reserve(len(shards))
    adding = f"Add rows to {spec.factory}"
    with throughput(len(shards), 0, "rows", adding, None) as count:
        for shard in shards:
            x = metric.embeddings(
                shard.embeddings, None, "embeddings", "a shard"
            )
            values = checked_columns(
                {**_labels(shard.labels), **shard.columns}, len(x)
            )
            row_keys: Any = shard.ids if keys in (None, "id") else values[keys]
            engine.add(x, rows.add(values, len(x), row_keys))
            count(len(x))

    def read() -> Iterator[FloatArray]:
        for part in shards.embeddings():
            yield metric.embeddings(part, None, "embeddings", "Index").array

    recall = None if engine.is_exact else measure(engine, read, rows.ids)
    return engine, rows, recall


def _check(shards: EmbeddingShards, columns: Any, keys: Any) -> None:
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
        values = {**_labels(shards.labels), **shards.columns}
        column = column_of_keys(keys, values)
        RowTable.empty().new_keys(column, len(shards), "Index")


def _labels(labels: Any) -> Values:
    return {} if labels is None else {LABEL: label_values(labels)}


def _sample(shards: EmbeddingShards, spec: IndexSpec) -> FloatArray:
    """Embeddings to train the index with, (n, D) float32."""
    index = make_index(shards.dim, spec)
    if index.is_trained:
        return np.empty((0, shards.dim), np.float32)
    lists = inverted(index)
    size = _TRAINED_VECTORS * max(_TRAINED_VECTORS, lists.nlist if lists else 0)
    drawn = np.random.default_rng(0).permutation(len(shards))[:size]
    return take_rows(shards.embeddings(), np.sort(drawn), shards.dim)
