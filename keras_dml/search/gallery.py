"""Gallery: what keeps the rows of an index with their vectors, and finds them.

In memory it is a `LocalGallery`, which faiss searches, and `built` makes it of
embeddings; in a database a `DatabaseGallery`, with the same methods.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from keras_dml.embedding import EmbeddingShards, Shard
from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.search import recall
from keras_dml.search.database import DatabaseGallery
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import (
    FLOAT32,
    Engine,
    Form,
    make,
    number_of_lists,
    set_parameters,
)
from keras_dml.search.filters import Where
from keras_dml.search.metrics import Metric
from keras_dml.search.recall import Recall
from keras_dml.search.rescored import Rescored
from keras_dml.search.rows import (
    Block,
    Columns,
    Key,
    RowTable,
    Values,
    checked_columns,
    label_values,
    new_keys,
)
from keras_dml.utils import progress
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

_TRAINED = 256
"""Training vectors per list, or per value of a code, for faiss."""


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
        self.dim, self.factory = engine.dim, engine.factory
        self.parameters, self.precision = engine.parameters, engine.precision
        self.keeps_vectors = engine.is_exact or isinstance(engine, Rescored)

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
        """All vectors, (N, D), in the order of the ids."""
        vectors = self.engine.vectors
        if len(self) == len(vectors):
            return vectors
        return self.stored(self.rows.ids)  # Others are hidden.

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


def check_kind(dim: int | None, form: Form) -> None:
    """ValueError if there is no such kind of index; see `built`.

    Args:
        dim: Dimensions of the vectors; None if they are not known yet.
        form: The kind.
    """
    if dim is not None:
        set_parameters(make(dim, form), form)


def built(
    given: tuple[Any, Columns | None, Any], form: Form, encoder: Encoder
) -> tuple[LocalGallery, Recall | None]:
    """The gallery of an index, and its recall; see `Index`.

    Args:
        given: Embeddings, columns and keys, as the user passes them.
        form: The kind of index.
        encoder: The encoder that computed the embeddings.
    """
    embeddings, columns, keys = given
    if isinstance(embeddings, EmbeddingShards):
        encoder.expect(embeddings.model)
        column = check_shards(embeddings, columns, keys)
        return of_shards(embeddings, column, form)
    # Before time is spent on training.
    rows = checked_rows(embeddings, columns, keys, form.metric)
    return in_memory(*rows, form)


def _empty(x: Embeddings, form: Form) -> LocalGallery:
    """A gallery without rows, trained for vectors like `x`, (N, D)."""
    kind = Engine if form.precision == FLOAT32 else Rescored
    return LocalGallery(kind.trained(x, form), RowTable())


def in_memory(
    x: Embeddings, columns: Values, keys: list[Key] | None, form: Form
) -> tuple[LocalGallery, Recall | None]:
    """A faiss index, and its recall."""
    gallery = _empty(x, form)
    engine = gallery.engine
    filling = f"Fill {form.codes} with {len(x):,} vectors"
    # Filling an exact one is copying.
    with progress.waiting(filling, False if engine.is_exact else None):
        ids = gallery.insert(x, columns, keys)
        if engine.is_exact:
            return gallery, None
        return gallery, recall.measure(engine, lambda: iter([x.array]), ids)


def of_shards(
    shards: EmbeddingShards, keys: str, form: Form
) -> tuple[LocalGallery, Recall | None]:
    """A faiss index, trained on a sample and filled one shard at a time."""
    by = form.metric
    sample = by.given(_sample(shards, form), shards.dim, "embeddings", "Index")
    gallery = _empty(sample, form)
    engine = gallery.engine
    engine.reserve(len(shards))
    adding = f"Add rows to {form.codes}"
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
    return x, *checked_values(columns, keys, len(x))


def checked_values(
    columns: Columns | None, keys: Any, count: int
) -> tuple[Values, list[Key] | None]:
    """As `checked_rows`, without embeddings."""
    values = checked_columns(columns, count)
    own = key_column(keys, values)
    return values, own if own is None else new_keys(own, count, "Index", None)


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


def _sample(shards: EmbeddingShards, form: Form) -> FloatArray:
    """Embeddings to train the index with, (n, D) float32."""
    index = make(shards.dim, form)
    if index.is_trained:
        return np.empty((0, shards.dim), np.float32)
    wanted = _TRAINED * max(_TRAINED, number_of_lists(index))
    count = min(len(shards), wanted)
    drawn = np.random.default_rng(0).permutation(len(shards))[:count]
    return recall.taken(shards.embeddings(), np.sort(drawn), shards.dim)
