"""Building: an index in memory, of embeddings or of shards of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_dml.embedding import EmbeddingShards, Shard
from keras_dml.search import faiss_kinds, recall
from keras_dml.search.class_labels import label_values
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import Engine
from keras_dml.search.gallery import LocalGallery
from keras_dml.search.metrics import Metric
from keras_dml.search.recall import Recall
from keras_dml.search.rows import (
    Block,
    Columns,
    Key,
    RowTable,
    Values,
    checked_columns,
    new_keys,
)
from keras_dml.utils import progress
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray

Built = tuple[LocalGallery, Recall | None]

_TRAINED = 256
"""Training vectors per list, or per value of a code, for faiss."""


def check_kind(
    dim: int | None, by: Metric, factory: str, parameters: str | None
) -> None:
    """ValueError if there is no such kind of index; see `built`.

    Args:
        dim: Dimensions of the vectors; None if they are not known yet.
        by, factory, parameters: As for `built`.
    """
    if dim is not None:
        index = faiss_kinds.make(dim, factory, by.faiss_type)
        faiss_kinds.set_parameters(index, parameters)


def built(
    given: tuple[Any, Columns | None, Any],
    by: Metric,
    factory: str,
    parameters: str | None,
    encoder: Encoder,
) -> Built:
    """The gallery of an index, and its recall; see `Index`.

    Args:
        given: Embeddings, columns and keys, as the user passes them.
        by: The metric of the scores.
        factory, parameters: The kind of index.
        encoder: The encoder that computed the embeddings.
    """
    embeddings, columns, keys = given
    if isinstance(embeddings, EmbeddingShards):
        encoder.expect(embeddings.model)
        column = check_shards(embeddings, columns, keys)
        return of_shards(embeddings, column, by, factory, parameters)
    # Before time is spent on training.
    rows = checked_rows(embeddings, columns, keys, by)
    return in_memory(*rows, by, factory, parameters)


def in_memory(
    x: Embeddings,
    columns: Values,
    keys: list[Key] | None,
    by: Metric,
    factory: str,
    parameters: str | None,
) -> Built:
    """A faiss index, and its recall."""
    engine = Engine.trained(x, by, factory, parameters)
    gallery = LocalGallery(engine, RowTable())
    filling = f"Fill {factory} with {len(x):,} vectors"
    # Filling an exact one is copying.
    with progress.waiting(filling, False if engine.is_exact else None):
        ids = gallery.insert(x, columns, keys)
        if engine.is_exact:
            return gallery, None
        return gallery, recall.measure(engine, lambda: iter([x.array]), ids)


def of_shards(
    shards: EmbeddingShards,
    keys: str,
    by: Metric,
    factory: str,
    parameters: str | None,
) -> Built:
    """A faiss index, trained on a sample and filled one shard at a time."""
    sample = by.given(
        _sample(shards, factory, by), shards.dim, "embeddings", "Index"
    )
    engine = Engine.trained(sample, by, factory, parameters)
    gallery = LocalGallery(engine, RowTable())
    engine.reserve(len(shards))
    adding = f"Add rows to {factory}"
    with progress.throughput(len(shards), 0, "rows", adding, None) as count:
        for shard in shards:
            block = block_of(shard, by, keys)
            x = Embeddings(block.vectors, None, "embeddings", "Index")
            gallery.insert(x, block.columns, block.keys)
            count(len(x))
    if engine.is_exact:
        return gallery, None

    def read() -> Iterator[FloatArray]:
        for part in shards.embeddings():
            yield by.given(part, None, "embeddings", "Index").array

    return gallery, recall.measure(engine, read, gallery.rows.ids)


def block_of(shard: Shard, by: Metric, keys: str) -> Block:
    """The rows of a shard.

    Args:
        shard: The shard.
        by: How its embeddings are compared.
        keys: Name of the column that has the keys; "id" for the ids.
    """
    x = by.given(shard.embeddings, None, "embeddings", "a shard")
    ids = np.arange(shard.rows.start, shard.rows.stop)
    columns: Columns = dict(shard.columns)
    if shard.labels is not None:
        columns = {"label": label_values(shard.labels), **columns}
    values = checked_columns(columns, len(ids))
    own: Any = shard.ids if keys == "id" else values[keys]
    return Block(ids, x.array, values, own)


def key_column(keys: Any, columns: Values) -> Any:
    """Keys, or those in the column of that name."""
    if not isinstance(keys, str):
        return keys
    if keys not in columns:
        raise ValueError(
            "`keys` of Index must be one key per row, or the name of a column. "
            f"Received: {keys!r}. Available: {', '.join(columns) or 'none'}."
        )
    return columns[keys]


def checked_rows(
    embeddings: Any, columns: Columns | None, keys: Any, by: Metric
) -> tuple[Embeddings, Values, list[Key] | None]:
    """Embeddings, columns and keys passed by the user, validated."""
    x = by.given(embeddings, None, "embeddings", "Index")
    values = checked_columns(columns, len(x))
    own = key_column(keys, values)
    return (
        x,
        values,
        own if own is None else new_keys(own, len(x), "Index", None),
    )


def check_shards(shards: EmbeddingShards, columns: Any, keys: Any) -> str:
    """The name of the column with the keys; ValueError if invalid."""
    if columns is not None:
        raise ValueError(
            "`columns` of Index must not be given for EmbeddingShards, which "
            f"have their own. Received: {columns!r}. Use Index.update to add "
            "others."
        )
    if not isinstance(keys, str | None):
        raise ValueError(
            "`keys` of Index must be the name of a column for EmbeddingShards, "
            f"by default the ids. Received: a {type(keys).__name__}."
        )
    if keys not in (None, "id"):
        labels = shards.labels
        known = {} if labels is None else {"label": label_values(labels)}
        column = key_column(keys, {**known, **shards.columns})
        new_keys(column, len(shards), "Index", None)
    return keys or "id"


def _sample(shards: EmbeddingShards, factory: str, by: Metric) -> FloatArray:
    """Embeddings to train the index with, (n, D) float32."""
    index = faiss_kinds.make(shards.dim, factory, by.faiss_type)
    if index.is_trained:
        return np.empty((0, shards.dim), np.float32)
    lists = faiss_kinds.lists_of(index)
    wanted = _TRAINED * max(_TRAINED, 0 if lists is None else lists.nlist)
    count = min(len(shards), wanted)
    drawn = np.random.default_rng(0).permutation(len(shards))[:count]
    return recall.taken(shards.embeddings(), np.sort(drawn), shards.dim)
