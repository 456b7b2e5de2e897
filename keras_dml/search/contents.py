"""Contents: what an index holds, read and changed.

Labels of classes with names are the same in all rows, see `as_in`.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_dml.data.validation import encoded
from keras_dml.search.encoder import Encoder
from keras_dml.search.filters import Where
from keras_dml.search.gallery import Gallery
from keras_dml.search.keys import Key, as_keys
from keras_dml.search.metrics import MetricName
from keras_dml.search.pictures import (
    THUMBNAIL,
    as_image_set,
    image_columns,
    thumbnail_column,
)
from keras_dml.search.recall import Recall
from keras_dml.search.rows import (
    Columns,
    RowTable,
    Values,
    as_columns,
    checked_columns,
    label_values,
)
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows

Pairs: TypeAlias = dict[tuple[Any, Any], int]
"""New labels by label and name of a class."""

LABEL, NAME = "label", "name"
"""Columns with the number and the name of each row's class."""


class Contents:
    """The rows of an index, their embeddings, and the model behind them.

    An operation that fails changes nothing.
    """

    # Stores and searches the rows and their embeddings.
    _gallery: Gallery
    # Computes embeddings.
    _encoder: Encoder

    def __len__(self) -> int:
        return len(self._gallery)

    def __getitem__(self, key: Key) -> dict[str, Any]:
        """The columns of the row with a key; KeyError if there is none."""
        (row_id,) = self._gallery.rows.find([key], "Index")
        if row_id is None:
            raise KeyError(f"There is no row {key!r} in the index.")
        return self.row(row_id)

    def __contains__(self, key: object) -> bool:
        """Whether there is a row with a key."""
        return key in self._gallery.rows

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
        return self._gallery.engine.factory

    @property
    def parameters(self) -> str:
        """Search parameters, in the notation of the search engine."""
        return self._gallery.engine.parameters

    @property
    def recall(self) -> Recall | None:
        """How much the index missed when it was built; None if it is exact."""
        return self._gallery.recall

    @property
    def types(self) -> dict[str, set[type]]:
        """Types of the values by column, not counting None."""
        return self._gallery.rows.types

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
        x = self._encoder.embed(items, name, owner, batch_size)
        return self._gallery.metric.embeddings(
            items if x is None else x, self.dim, name, owner
        )

    def add(
        self,
        items: Any,
        columns: Columns | None = None,
        batch_size: int = 256,
        *,
        keys: Any = None,
        replace: bool = False,
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
            replace: Whether rows that have one of the keys are replaced. A
                replaced row becomes a new row with a new id, placed after all
                others. Nothing of the old row is kept, not even its columns.

        Returns:
            The ids of the rows, (N,).

        Raises:
            ValueError: As for `Index`, if one of the keys already exists and
                `replace` is False, or if `columns` give a class name another
                label than the index. Nothing is added in this case.
        """
        owner = "Index.add"
        x = self._embeddings(items, "items", owner, batch_size)
        values = columns_of(items, columns)
        rows = self._gallery.rows
        if THUMBNAIL in rows.columns:
            sets = self._encoder.sets(items, "items", owner) or []
            values = {**thumbnail_column(sets), **values}
        values = checked_columns(values, len(x))
        is_own = bool({LABEL, NAME} & set(as_columns(columns)))
        values = as_in(rows, values, is_own, owner)
        if replace and keys is None:
            raise ValueError(
                f"`replace` of {owner} requires `keys`. Received: "
                "replace=True, keys=None."
            )
        row_keys = rows.new_keys(keys, len(x), owner)
        taken = set(row_keys or []) & set(rows.keys or {})
        if taken and not replace:
            key = next(x for x in row_keys or [] if x in taken)
            raise ValueError(
                f"`keys` of {owner} must be new. Received: {key!r}, which "
                "already exists. Use replace=True to replace rows."
            )
        return self._gallery.insert(x, values, row_keys)

    def remove(self, keys: Any = None, *, where: Where | None = None) -> int:
        """Removes rows; their ids are never reused.

        Graphs and lists hide the vectors at first, which stay in memory and in
        the file. With more than half hidden, kinds that keep whole vectors are
        built anew, and lists of codes drop theirs.

        Args:
            keys: Keys of rows, or one key.
            where: The rows to remove, as for `search`; give this or `keys`.

        Returns:
            The number of rows removed.

        Raises:
            KeyError: If a key does not exist. Nothing is removed in this case.
        """
        if (keys is None) == (where is None):
            raise ValueError(
                "Either `keys` or `where` of Index.remove must be given, but "
                f"not both. Received: keys={keys!r}, where={where!r}."
            )
        if where is None:
            ids = np.unique(self._ids_of(keys, "Index.remove"))
        else:
            ids = self._gallery.rows.where(where)
        if len(ids):
            self._gallery.remove(ids)
        return len(ids)

    def _ids_of(self, keys: Any, owner: str) -> Rows:
        """Ids of the rows with these keys, (n,); KeyError if one is missing."""
        ids = self._gallery.rows.find(keys, owner)
        if None in ids:
            key = as_keys(keys, owner)[ids.index(None)]
            raise KeyError(
                f"`keys` of {owner} must be keys of existing rows. Received: "
                f"{key!r}, which does not exist."
            )
        return np.array(ids, np.int64)


def columns_of(items: Any, columns: Columns | None) -> Columns:
    """The user's columns, together with those that the images have."""
    images = as_image_set(items)
    of_images = {} if images is None else image_columns(items, images)
    return {**of_images, **as_columns(columns)}


def class_columns(labels: Any) -> dict[str, list[Any]]:
    """Columns of classes, (N,), which are integers or strings."""
    numbers, names = encoded(labels, None, "Index")
    columns = {LABEL: label_values(numbers)}
    if names and numbers.ndim == 1:
        columns[NAME] = [names[i] for i in columns[LABEL]]
    return columns


def as_in(rows: RowTable, columns: Values, is_own: bool, owner: str) -> Values:
    """Columns of rows to be written, with labels numbered as in an index.

    Sets number their classes from 0, each for itself. A name that the index has
    gets its label there. Another name keeps its number if that is free, and
    gets a new one otherwise. Those that are the user's own, as columns, are
    only checked.

    Raises:
        ValueError: If one name has several labels.
    """
    types = rows.types
    has_classes = types.get(LABEL) == {int} and types.get(NAME) == {str}
    if not has_classes or not {LABEL, NAME} <= set(columns):
        return columns
    pairs = list(zip(columns[LABEL], columns[NAME], strict=True))
    classes = sorted({(i, name) for i, name in pairs if None not in (i, name)})
    by_name: dict[str, set[int]] = defaultdict(set)
    for label, name in zip(
        rows.columns[LABEL], rows.columns[NAME], strict=True
    ):
        if label is not None:
            by_name[name].add(label)
    new: Pairs = {}
    taken = set().union(*by_name.values())
    fresh = count(1 + max(taken | {label for label, _ in classes}, default=-1))
    for label, name in classes:
        labels = by_name.get(name, set())
        if is_own and len(labels) == 1 and label not in labels:
            (other,) = labels
            raise ValueError(
                f"`columns` of {owner} must give a class the label that it has "
                f"in the index. Received: label {label} for the name {name!r}, "
                f"which has label {other} there. Use {other}, or another name."
            )
        if not is_own and len(labels) > 1:
            raise ValueError(
                f"`items` of {owner} must have classes with one label each. "
                f"Received: {name!r}, which has the labels {sorted(labels)} in "
                "the index. Build the index with one label for them."
            )
        if labels:
            new[label, name] = min(labels)
        else:
            new[label, name] = next(fresh) if label in taken else label
    if is_own:
        return columns
    return {**columns, LABEL: [new.get(pair, pair[0]) for pair in pairs]}
