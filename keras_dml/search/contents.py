"""Contents: what an index holds, read and changed.

Labels of classes with names are the same in all rows, see `as_in`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_dml.data.validation import encoded
from keras_dml.search.encoder import Encoder
from keras_dml.search.filters import Where
from keras_dml.search.gallery import LocalGallery
from keras_dml.search.metrics import MetricName
from keras_dml.search.pictures import (
    THUMBNAIL,
    as_image_set,
    image_columns,
    thumbnail_column,
)
from keras_dml.search.rows import (
    Columns,
    Key,
    Values,
    as_columns,
    as_keys,
    check_unique,
    checked_columns,
    label_values,
)
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows

Pairs: TypeAlias = list[tuple[Any, Any]]
"""Labels and names of rows, or None for those that are missing."""

LABEL, NAME = "label", "name"
"""Columns with the number and the name of each row's class."""


class Contents:
    """The rows of an index, their embeddings, and the model behind them.

    An operation that fails changes nothing.
    """

    # Stores and searches the rows and their embeddings.
    _gallery: LocalGallery
    # Computes embeddings.
    _encoder: Encoder

    def __len__(self) -> int:
        return len(self._gallery)

    def __getitem__(self, key: Key) -> dict[str, Any]:
        """The columns of the row with a key; KeyError if there is none."""
        (row_id,) = self._gallery.find([key], "Index")
        if row_id is None:
            raise KeyError(f"There is no row {key!r} in the index.")
        return self.row(row_id)

    def __contains__(self, key: object) -> bool:
        """Whether there is a row with a key."""
        return key in self._gallery

    def __iter__(self) -> Iterator[Key]:
        """The keys, in the order of the rows."""
        return iter(self.keys)

    @property
    def metric(self) -> MetricName:
        """The metric of the scores: "cosine", "dot" or "euclidean"."""
        return self._gallery.metric.name

    @property
    def dim(self) -> int:
        """Dimensions of the embeddings, D."""
        return self._gallery.dim

    @property
    def factory(self) -> str:
        """The kind of index, as a factory string."""
        return self._gallery.factory

    @property
    def parameters(self) -> str:
        """Search parameters, in the notation of the search engine."""
        return self._gallery.parameters

    @property
    def types(self) -> dict[str, set[type]]:
        """Types of the values by column, not counting None."""
        return dict(self._gallery.types)

    @property
    def ids(self) -> Rows:
        """Ids of the rows, ascending, (N,)."""
        return self._gallery.rows.ids.copy()

    @property
    def keys(self) -> list[Key]:
        """Keys of the rows, or ids if rows have no keys, in the same order."""
        rows = self._gallery.rows
        return list(rows.keys_of(rows.ids))

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Values of the rows by column, in the order of the ids."""
        columns = self._gallery.rows.columns
        return {name: list(values) for name, values in columns.items()}

    @property
    def embeddings(self) -> FloatArray:
        """The embeddings used for comparison, (N, D), in the order of the ids.

        With the metric "cosine" they have unit length.
        """
        return self._gallery.vectors.copy()

    @property
    def labels(self) -> list[Any]:
        """The class of each image: its "name", or else its "label".

        Raises:
            ValueError: If neither column has a value for every row.
        """
        columns = self._gallery.rows.columns
        for column in (NAME, LABEL):
            values = columns.get(column, [None])
            if None not in values:
                return list(values)
        raise ValueError(
            '`labels` of an Index require a column "name" or "label" in which '
            f"every row has a value. Received: columns {list(columns)}."
        )

    def row(self, row_id: int) -> dict[str, Any]:
        """The columns of one row; KeyError if the row does not exist."""
        return self._gallery.rows.row(row_id)

    def check_model(self, model: keras.Model, owner: str) -> None:
        """Checks that a model computed the embeddings, as far as is known.

        Args:
            model: The model.
            owner: The function that needs it, in messages.

        Raises:
            ValueError: If it is another model, or its weights have changed.
        """
        self._encoder.check(model, owner)

    def _embeddings(
        self, items: Any, name: str, owner: str, batch_size: int
    ) -> Embeddings:
        """Embeddings of images, or the given ones, checked, (N, D)."""
        found = self._encoder.embed(items, name, owner, batch_size)
        x = items if found is None else found
        return self._gallery.metric.given(x, self.dim, name, owner)

    def add(
        self,
        items: Any,
        columns: Columns | None = None,
        batch_size: int = 256,
        *,
        keys: Any = None,
    ) -> Rows:
        """Adds rows.

        Images get thumbnails if the index has a column of them.

        Args:
            items: Images, as for `build`, or embeddings, (N, D) or (D,).
                Classes of a set that have names get the labels that these names
                have in the index; other names get new labels.
            columns: Values of the rows by column. Existing rows get None in new
                columns, and new rows get None in columns that are not given.
            batch_size: Number of images embedded at a time.
            keys: Keys of the rows; required if the existing rows have keys.

        Returns:
            The ids of the rows, (N,).

        Raises:
            ValueError: As for `Index`, if one of the keys already exists, or
                if `columns` give a class name another label than the index.
                Nothing is added in this case.
        """
        x, values = self._checked(items, columns, "Index.add", batch_size)
        own = self._new_keys(keys, len(x), "Index.add")
        return self._gallery.insert(x, values, own)

    def upsert(
        self,
        keys: Any,
        items: Any,
        columns: Columns | None = None,
        batch_size: int = 256,
    ) -> Rows:
        """Adds rows, replacing existing rows that have the same keys.

        A replaced row becomes a new row with a new id, placed after all others.
        Nothing of the old row is kept, not even its columns.

        Args:
            keys: Keys of the N rows.
            items: Images or embeddings, as for `add`.
            columns: Values of the rows by column, as for `add`.
            batch_size: Number of images embedded at a time.

        Returns:
            The ids of the rows, (N,).

        Raises:
            ValueError: As for `Index`, if the rows of the index have no keys,
                or if this kind of index can neither remove nor hide rows.
                Nothing is changed in this case.
        """
        owner = "Index.upsert"
        x, values = self._checked(items, columns, owner, batch_size)
        given = [] if keys is None else keys
        own = self._gallery.check_keys(given, len(x), owner)
        return self._gallery.upsert(x, values, own)

    def update(self, keys: Any, columns: Columns) -> None:
        """Sets values of columns; embeddings and other columns are kept.

        Args:
            keys: Keys of N rows, or one key.
            columns: New values by column, N each. If a column is new, all other
                rows get None.

        Raises:
            KeyError: If a key does not exist. Nothing is changed in this case.
            ValueError: If `columns` are invalid. Nothing is changed in this
                case.
        """
        ids = self._ids_of(keys, "Index.update")
        check_unique(as_keys(keys, "Index.update"), "Index.update")
        self._gallery.update(ids, checked_columns(columns, len(ids)))

    def remove(self, keys: Any = None, *, where: Where | None = None) -> int:
        """Removes rows; their ids are never reused.

        Kinds of index that do not support removal, such as HNSW, only hide the
        vectors, which stay in memory and in the file.

        Args:
            keys: Keys of rows, or one key.
            where: The rows to remove, as for `search`; give this or `keys`.

        Returns:
            The number of rows removed.

        Raises:
            KeyError: If a key does not exist. Nothing is removed in this case.
            ValueError: If this kind of index can neither remove nor hide rows.
        """
        if (keys is None) == (where is None):
            raise ValueError(
                "Either `keys` or `where` of Index.remove must be given, but "
                f"not both. Received: keys={keys!r}, where={where!r}."
            )
        if where is None:
            ids = np.unique(self._ids_of(keys, "Index.remove"))
        else:
            ids = self._gallery.where(where)
        if len(ids):
            self._gallery.remove(ids)
        return len(ids)

    def merge(self, other: "Contents") -> Rows:
        """Adds all rows of another index, which is not changed.

        Labels of classes with names become those of this index, as for `add`.

        Args:
            other: An index that is exact, with the same metric and built with
                the same model. The latter cannot be
                checked if one of the two indexes does not know its model.

        Returns:
            The ids of the added rows in this index, (N,).

        Raises:
            ValueError: If `other` is a different kind of index, or one of its
                keys already exists in this one. Nothing is added in this case.
        """
        fits = isinstance(other, Contents) and other._gallery.keeps_vectors
        fits = fits and (other.dim, other.metric) == (self.dim, self.metric)
        difference = fits and self._encoder.difference(other._encoder)
        if not fits or difference:
            raise ValueError(
                "`other` of Index.merge must be an exact index with the same "
                f"metric, dimensions and model as this one, {self!r}. "
                f"Received: {other!r}"
                + (f", by a model {difference}" if difference else "")
                + ". Rebuild it with the settings of this one."
            )
        x = Embeddings(other.embeddings, self.dim, "other", "Index.merge")
        keys = other.keys if other._gallery.has_keys else None
        own = self._new_keys(keys, len(x), "Index.merge")
        columns = as_in(self._gallery, other.columns, False, "Index.merge")
        return self._gallery.insert(x, columns, own)

    def _checked(
        self, items: Any, columns: Columns | None, owner: str, batch_size: int
    ) -> tuple[Embeddings, Values]:
        """Embeddings and columns of rows to write."""
        x = self._embeddings(items, "items", owner, batch_size)
        given = columns_of(items, columns)
        if THUMBNAIL in self._gallery.names:
            sets = self._encoder.sets(items, "items", owner) or []
            given = {**thumbnail_column(sets), **given}
        values = checked_columns(given, len(x))
        is_own = bool({LABEL, NAME} & set(as_columns(columns)))
        return x, as_in(self._gallery, values, is_own, owner)

    def _new_keys(self, keys: Any, count: int, owner: str) -> list[Key] | None:
        """Keys of rows to write; ValueError if one of them already exists."""
        own = self._gallery.check_keys(keys, count, owner)
        # An index of rows without keys has none yet.
        known = own if self._gallery.has_keys else []
        found = self._gallery.find(known, owner) if known else []
        for key, row_id in zip(known or [], found, strict=True):
            if row_id is not None:
                raise ValueError(
                    f"`keys` of {owner} must be new. Received: {key!r}, which "
                    "already exists. Use Index.upsert to replace rows."
                )
        return own

    def _ids_of(self, keys: Any, owner: str) -> Rows:
        """Ids of the rows with these keys, (n,); KeyError if one is missing."""
        found = self._gallery.find(keys, owner)
        if None in found:
            key = as_keys(keys, owner)[found.index(None)]
            raise KeyError(
                f"`keys` of {owner} must be keys of existing rows. Received: "
                f"{key!r}, which does not exist."
            )
        return np.array(found, np.int64)


def columns_of(items: Any, given: Columns | None) -> Columns:
    """The given columns, together with those that the images have."""
    images = as_image_set(items)
    brought = {} if images is None else image_columns(items, images)
    return {**brought, **as_columns(given)}


def class_columns(labels: Any) -> dict[str, list[Any]]:
    """Columns of classes, (N,), which are integers or strings."""
    numbers, names = encoded(labels, None, "Index")
    columns = {LABEL: label_values(numbers)}
    if names and numbers.ndim == 1:
        columns[NAME] = [names[i] for i in columns[LABEL]]
    return columns


def as_in(
    gallery: LocalGallery, columns: Values, is_own: bool, owner: str
) -> Values:
    """Columns of rows to be written, with labels numbered as in a gallery.

    Sets number their classes from 0, each for itself. A name that the gallery
    knows gets its label there. Another name keeps its number if that is free,
    and gets a new one otherwise. Those that are the user's own, as columns, are
    only checked.

    Raises:
        ValueError: If one name has several labels.
    """
    types = gallery.types
    has_classes = types.get(LABEL) == {int} and types.get(NAME) == {str}
    if not has_classes or not {LABEL, NAME} <= set(columns):
        return columns
    pairs = list(zip(columns[LABEL], columns[NAME], strict=True))
    given = sorted({(i, name) for i, name in pairs if None not in (i, name)})
    known = _labels_of(gallery, {name for _, name in given})
    if is_own:
        _check(given, known, owner)
        return columns
    new, taken = {}, set()
    if not all(known[name] for _, name in given):
        taken = {x for x, _ in _classes(gallery, {LABEL: {"!=": None}})}
    fresh = count(1 + max(taken | {label for label, _ in given}, default=-1))
    for label, name in given:
        if len(known[name]) > 1:
            raise ValueError(
                f"`items` of {owner} must have classes with one label each. "
                f"Received: {name!r}, which has the labels "
                f"{sorted(known[name])} in the index. Give its rows one label "
                "with Index.update."
            )
        if known[name]:
            (new[label, name],) = known[name]
        else:
            new[label, name] = next(fresh) if label in taken else label
    labels = [new.get(pair, pair[0]) for pair in pairs]
    return {**columns, LABEL: labels}


def _check(given: Pairs, known: Mapping[str, set[int]], owner: str) -> None:
    """ValueError if a class that has one label is given another."""
    for label, name in given:
        if len(known[name]) == 1 and label not in known[name]:
            (other,) = known[name]
            raise ValueError(
                f"`columns` of {owner} must give a class the label that it has "
                f"in the index. Received: label {label} for the name {name!r}, "
                f"which has label {other} there. Use {other}, or another name."
            )


def _labels_of(gallery: LocalGallery, names: set[str]) -> dict[str, set[int]]:
    """The labels of class names in the rows of a gallery."""
    labels: dict[str, set[int]] = defaultdict(set)
    for label, name in _classes(gallery, {NAME: sorted(names)}):
        if label is not None:
            labels[name].add(label)
    return labels


def _classes(gallery: LocalGallery, where: Where) -> Pairs:
    """Label and name of the rows that pass a filter."""
    ids = gallery.where(where)
    if not len(ids):
        return []
    table = gallery.rows
    labels, names = table.columns[LABEL], table.columns[NAME]
    rows = np.searchsorted(table.ids, ids).tolist()
    return [(labels[row], names[row]) for row in rows]
