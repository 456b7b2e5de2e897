"""Building: an index of rows in memory, or of shards of embeddings."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_dml.embedding import EmbeddingShards
from keras_dml.search import faiss_kinds, recall
from keras_dml.search.copying import copy
from keras_dml.search.database import DatabaseGallery
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import Engine
from keras_dml.search.gallery import Gallery, Values
from keras_dml.search.keys import Key, new_keys
from keras_dml.search.kinds import Kind
from keras_dml.search.local import LocalGallery
from keras_dml.search.manifest import IndexFileError
from keras_dml.search.metrics import Metric
from keras_dml.search.recall import Recall
from keras_dml.search.rows import Columns, RowTable, checked_columns
from keras_dml.search.sources import Source, block_of, label_values
from keras_dml.search.state import State
from keras_dml.search.table import Table
from keras_dml.search.uris import table_at
from keras_dml.utils import progress
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray

Built = tuple[LocalGallery, Recall | None]

_TRAINED = 256
"""Training vectors per list, or per value of a code, for faiss."""


def check_kind(
    dim: int | None,
    by: Metric,
    factory: str,
    parameters: str | None,
    place: str | None,
) -> None:
    """ValueError if there is no such kind of index; see `built`.

    Args:
        dim: Dimensions of the vectors; None if they are not known yet.
        by, factory, parameters, place: As for `built`.
    """
    if place is not None:
        Kind.of(factory, parameters, table_at(place, "Index").engine)
    elif dim is not None:
        index = faiss_kinds.make(dim, factory, by.faiss_type)
        faiss_kinds.set_parameters(index, parameters)


def built(
    given: tuple[Any, Columns | None, Any],
    by: Metric,
    factory: str,
    parameters: str | None,
    encoder: Encoder,
    place: str | None,
) -> tuple[Gallery, Recall | None]:
    """The gallery of an index, and its recall; see `Index`.

    Args:
        given: Embeddings, columns and keys, as the user passes them.
        by: The metric of the scores.
        factory, parameters: The kind of index.
        encoder: The encoder that computed the embeddings.
        place: The address of a database; None for memory.
    """
    embeddings, columns, keys = given
    kind = by, factory, parameters
    if isinstance(embeddings, EmbeddingShards):
        encoder.expect(embeddings.model)
        column = check_shards(embeddings, columns, keys)
        if place is None:
            return of_shards(embeddings, column, *kind)
        source = Source.of_shards(embeddings, by, column)
    else:
        # Before time is spent on training.
        rows = given_rows(embeddings, columns, keys, by)
        if place is None:
            return in_memory(*rows, *kind)
        source = Source.of_rows(*rows, by)
    source = source.by_model(encoder.identity)
    table = table_at(place, "Index")
    return copy(source, table, factory, parameters)[0], None


def opened(table: Table) -> DatabaseGallery:
    """The gallery in a database.

    Raises:
        FileNotFoundError: If there is none.
        OSError: If the database cannot be reached.
        ValueError: If it is damaged or incomplete, or not an index.
    """
    if not table.exists():
        raise FileNotFoundError(
            f"There is no index in {table}. Use `keras-dml push` or Index.push "
            "to write one."
        )
    text = table.read_state()
    if text is None:
        raise IndexFileError(
            f"{table} must be an index of keras_dml. Received: something else."
        )
    state = State.from_json(text, repr(table))
    if not state.is_whole:
        raise IndexFileError(
            f"{table} must be complete. Received: an index whose push was "
            "started but did not finish. Push it again to continue."
        )
    return DatabaseGallery(table, state)


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


def given_rows(
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
