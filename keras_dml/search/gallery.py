"""Gallery: keeps the rows of an index with their vectors, and finds them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_dml.embedding import EmbeddingShards
from keras_dml.search.approximate import nearest_of
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import Engine, Form, inverted, make
from keras_dml.search.filters import Where
from keras_dml.search.rows import (
    Columns,
    Key,
    RowTable,
    Values,
    as_keys,
    check_ids,
    check_kind,
    checked_columns,
    label_values,
    new_keys,
    types_of,
)
from keras_dml.utils import progress
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows

QUERIES, NEIGHBORS = 500, 10

_TRAINED = 256
"""Training vectors per list, or per value of a code, for faiss."""


@dataclass(frozen=True)
class Recall:
    """Recall of an index, compared to exact search, when it was built.

    A sample of gallery images is searched for among all others.

    Attributes:
        at: By k, the fraction of the true k nearest neighbors among the k
            found.
        score_error: For compressed vectors, the 95th percentile of the error of
            the returned scores.
        queries: Number of queries used for the measurement.
        rows: Number of images in the index at that time.
    """

    at: dict[int, float]
    score_error: float
    queries: int
    rows: int


class LocalGallery:
    """Rows in memory. What is refused changes nothing."""

    def __init__(self, engine: Engine, rows: RowTable) -> None:
        self.engine = engine
        self.rows = rows
        self.metric = engine.metric
        self.dim, self.factory = engine.dim, engine.factory
        self.parameters = engine.parameters
        self.keeps_vectors = engine.is_exact

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
        return types_of(self.rows.columns)

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
        if self.rows.keys is not None:
            return key in self.rows.keys
        return isinstance(key, int | np.integer) and key in self.rows.ids

    def check_keys(self, keys: Any, count: int, owner: str) -> list[Key] | None:
        """The own keys of rows to be written; see `new_keys`."""
        has_own = self.has_keys or (False if len(self) else None)
        return new_keys(keys, count, owner, has_own, self._key_type)

    def find(
        self, keys: Any, owner: str, name: str = "keys"
    ) -> list[int | None]:
        """Ids of the rows with some keys; None where there is no such row."""
        listed = as_keys(keys, owner, name)
        if self.rows.keys is not None:
            check_kind(self._key_type, listed, owner, name)
            return [self.rows.keys.get(key) for key in listed]
        check_ids(listed, owner, name)
        ids = np.array(listed, np.int64)
        known = np.isin(ids, self.rows.ids).tolist()
        found = zip(ids.tolist(), known, strict=True)
        return [i if is_known else None for i, is_known in found]

    @property
    def _key_type(self) -> type | None:
        keys = self.rows.keys
        return type(next(iter(keys))) if keys else None

    def where(self, where: Where) -> Rows:
        """Ids of the rows that pass a filter, ascending."""
        return self.rows.where(where)

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
        known = self.rows.keys or {}
        old = np.array(sorted(known[x] for x in keys or [] if x in known), int)
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


def built(
    given: tuple[Any, Columns | None, Any], form: Form, encoder: Encoder
) -> tuple[LocalGallery, Recall | None]:
    """The gallery of an index, and its recall; see `Index`.

    Embeddings, columns and keys are given as the user passes them.
    """
    embeddings, columns, keys = given
    if isinstance(embeddings, EmbeddingShards):
        encoder.expect(embeddings.model)
        column = check_shards(embeddings, columns, keys)
        return _of_shards(embeddings, column, form)
    x = form.metric.given(embeddings, None, "embeddings", "Index")
    # Before time is spent on training.
    values, own = checked_values(columns, keys, len(x))
    gallery = _trained(x, form)
    if gallery.engine.is_exact:
        gallery.insert(x, values, own)
        return gallery, None
    with progress.waiting(f"Fill {form.factory} with {len(x):,} vectors"):
        ids = gallery.insert(x, values, own)
        missed = measure(gallery.engine, lambda: iter([x.array]), ids)
    return gallery, missed


def _trained(x: Embeddings, form: Form) -> LocalGallery:
    """A gallery without rows, trained for vectors like `x`, (N, D)."""
    rows = RowTable(np.empty(0, np.int64), {}, 0)
    return LocalGallery(Engine.trained(x, form), rows)


def _of_shards(
    shards: EmbeddingShards, keys: str, form: Form
) -> tuple[LocalGallery, Recall | None]:
    """A faiss index, trained on a sample and filled one shard at a time."""
    by = form.metric
    sample = by.given(_sample(shards, form), shards.dim, "embeddings", "Index")
    gallery = _trained(sample, form)
    engine = gallery.engine
    engine.reserve(len(shards))
    adding = f"Add rows to {form.factory}"
    with progress.throughput(len(shards), 0, "rows", adding, None) as count:
        for shard in shards:
            x = by.given(shard.embeddings, None, "embeddings", "a shard")
            columns: Columns = dict(shard.columns)
            if shard.labels is not None:
                columns = {"label": label_values(shard.labels), **columns}
            values = checked_columns(columns, len(x))
            own: Any = shard.ids if keys == "id" else values[keys]
            gallery.insert(x, values, own)
            count(len(x))
    if engine.is_exact:
        return gallery, None

    def read() -> Iterator[FloatArray]:
        for part in shards.embeddings():
            yield by.given(part, None, "embeddings", "Index").array

    return gallery, measure(engine, read, gallery.rows.ids)


def _key_column(keys: Any, columns: Values) -> Any:
    """Keys, or those in the column of that name."""
    if not isinstance(keys, str):
        return keys
    if keys not in columns:
        raise ValueError(
            "`keys` of Index must be one key per row, or the name of a column. "
            f"Received: {keys!r}. Available: {', '.join(columns) or 'none'}."
        )
    return columns[keys]


def checked_values(
    columns: Columns | None, keys: Any, count: int
) -> tuple[Values, list[Key] | None]:
    """Columns and keys passed by the user, validated, of `count` rows."""
    values = checked_columns(columns, count)
    return values, new_keys(_key_column(keys, values), count, "Index")


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
        column = _key_column(keys, {**known, **shards.columns})
        new_keys(column, len(shards), "Index")
    return keys or "id"


def _sample(shards: EmbeddingShards, form: Form) -> FloatArray:
    """Embeddings to train the index with, (n, D) float32."""
    index = make(shards.dim, form)
    if index.is_trained:
        return np.empty((0, shards.dim), np.float32)
    lists = inverted(index)
    wanted = _TRAINED * max(_TRAINED, lists.nlist if lists else 0)
    count = min(len(shards), wanted)
    drawn = np.random.default_rng(0).permutation(len(shards))[:count]
    return _taken(shards.embeddings(), np.sort(drawn), shards.dim)


def measure(
    engine: Engine, read: Callable[[], Iterable[FloatArray]], ids: Rows
) -> Recall | None:
    """Recall of an index; None if there are fewer than two vectors.

    Args:
        engine: Of the index.
        read: What reads its vectors, (N, D) float32, a part at a time.
        ids: Their ids, (N,).
    """
    count = len(ids)
    if count < 2:
        return None
    k = min(NEIGHBORS, count - 1)
    generator = np.random.default_rng(0)
    drawn = generator.choice(count, min(QUERIES, count), replace=False)
    queries = _taken(read(), drawn, engine.dim)
    parts = _with_ids(read(), ids)
    exact = nearest_of(parts, queries, k + 1, engine.metric.faiss_type)[1]
    scores, found = engine.search(queries, k + 1)
    # Lists of ids, without the query itself.
    pairs = [
        (a[a != own][:k], b[b != own][:k])
        for a, b, own in zip(exact, found, ids[drawn], strict=True)
    ]
    at = {
        n: float(np.mean([np.isin(a[:n], b[:n]).mean() for a, b in pairs]))
        for n in sorted({1, k})
    }
    row, column = np.nonzero(found >= 0)
    rows = np.searchsorted(ids, found[row, column])
    hits = _taken(read(), rows, engine.dim)
    true = engine.metric.pairs(queries[row], hits)
    errors = np.abs(true - scores[row, column])
    error = float(np.quantile(errors, 0.95)) if len(errors) else 0.0
    return Recall(at, error, len(queries), count)


def _with_ids(
    parts: Iterable[FloatArray], ids: Rows
) -> Iterator[tuple[FloatArray, Rows]]:
    first = 0
    for part in parts:
        yield part, ids[first : first + len(part)]
        first += len(part)


def _taken(parts: Iterable[FloatArray], rows: Rows, dim: int) -> FloatArray:
    """Some rows of vectors that are read a part at a time, (n, D)."""
    result = np.empty((len(rows), dim), np.float32)
    first = 0
    for part in parts:
        inside = (rows >= first) & (rows < first + len(part))
        result[inside] = part[rows[inside] - first]
        first += len(part)
    return result
