"""Changes: rows of an index are added, replaced, updated and removed."""

from typing import Any

import numpy as np

from keras_dml.data.imageset import as_image_set, image_columns
from keras_dml.search.contents import Contents
from keras_dml.search.filters import Where
from keras_dml.search.gallery import Values
from keras_dml.search.keys import Key, as_keys, check_unique
from keras_dml.search.rows import Columns, as_columns, checked_columns
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import Rows


class Changes(Contents):
    """What changes an index: what is refused changes nothing."""

    def add(
        self,
        items: Any,
        columns: Columns | None = None,
        batch_size: int = 256,
        *,
        keys: Any = None,
    ) -> Rows:
        """Adds rows.

        Args:
            items: Images, as for `build`, or embeddings, (N, D) or (D,).
            columns: Values of the rows by column. Columns that the other
                rows lack are None there, and the other way round.
            batch_size: Images embedded at a time.
            keys: Their own keys, if the other rows have such.

        Returns:
            The ids of the rows, (N,).

        Raises:
            ValueError: As for `Index`, or if there is a row with one of the
                keys; then nothing was added.
        """
        x, values = self._given(items, columns, "Index.add", batch_size)
        own = self._gallery.check_keys(keys, len(x), "Index.add")
        self._check_new(own, "Index.add")
        return self._gallery.insert(x, values, own)

    def upsert(
        self,
        keys: Any,
        items: Any,
        columns: Columns | None = None,
        batch_size: int = 256,
    ) -> Rows:
        """Adds rows, or replaces those with the same keys.

        A row that is replaced is a new one, with another id, after all
        others; of the old one nothing is left, columns included.

        Args:
            keys: Own keys of the rows, N.
            items: Images or embeddings, as for `add`.
            columns: Values of the rows by column, as for `add`.
            batch_size: Images embedded at a time.

        Returns:
            The ids of the rows, (N,).

        Raises:
            ValueError: If the rows have no own keys, as for `Index`, or if
                this kind of index can neither remove nor hide rows; then
                nothing was changed.
        """
        owner = "Index.upsert"
        x, values = self._given(items, columns, owner, batch_size)
        given = [] if keys is None else keys
        own = self._gallery.check_keys(given, len(x), owner)
        return self._gallery.upsert(x, values, own)

    def update(self, keys: Any, columns: Columns) -> None:
        """Replaces values in columns; embeddings and other columns stay.

        Args:
            keys: Keys of N rows, or one key.
            columns: Their values by column, N each. A new column is None in
                all other rows.

        Raises:
            KeyError: If there is no row with one of the keys.
            ValueError: If columns do not fit; either way nothing was changed.
        """
        ids = self._ids_of(keys, "Index.update")
        check_unique(as_keys(keys, "Index.update"), "Index.update")
        self._gallery.update(ids, checked_columns(columns, len(ids)))

    def remove(self, keys: Any = None, *, where: Where | None = None) -> int:
        """Removes rows; their ids are not given again.

        Kinds of index that cannot remove, such as HNSW, only hide the
        vectors, which stay in memory and in the file.

        Args:
            keys: Keys of rows, or one key.
            where: Instead of keys, which rows, as for `search`.

        Returns:
            How many rows were removed.

        Raises:
            KeyError: If there is no such row; then nothing was removed.
            ValueError: If this kind of index can do neither.
        """
        if (keys is None) == (where is None):
            raise ValueError(
                "`keys` or `where` of Index.remove must be given, and not "
                f"both. Received: keys={keys!r}, where={where!r}."
            )
        if where is None:
            ids = np.unique(self._ids_of(keys, "Index.remove"))
        else:
            ids = self._gallery.where(where)
        if len(ids):
            self._gallery.remove(ids)
        return len(ids)

    def merge(self, other: Contents) -> Rows:
        """Adds all rows of another index, which stays as it is.

        Args:
            other: An exact index of the same metric, of embeddings of the
                same model. Where one of them does not know its model, that
                cannot be checked.

        Returns:
            The ids that its rows have here, (N,).

        Raises:
            ValueError: If it is another kind of index, or one of its keys is
                here already; then nothing was added.
        """
        fits = isinstance(other, Contents) and other._gallery.is_exact
        fits = fits and (other.dim, other.metric) == (self.dim, self.metric)
        difference = fits and self._encoder.difference(other._encoder)
        if not fits or difference:
            raise ValueError(
                "`other` of Index.merge must be an exact index of the metric, "
                "the dimensions and the model of this one, which is "
                f"{self!r}. Received: {other!r}"
                + (f", by a model {difference}" if difference else "")
                + ". Build it again as this one was."
            )
        x = Embeddings(other.embeddings, self.dim, "other", "Index.merge")
        keys = other.keys if other._gallery.has_keys else None
        own = self._gallery.check_keys(keys, len(x), "Index.merge")
        self._check_new(own, "Index.merge")
        return self._gallery.insert(x, other.columns, own)

    def _given(
        self,
        items: Any,
        columns: Columns | None,
        owner: str,
        batch_size: int,
    ) -> tuple[Embeddings, Values]:
        """Embeddings and columns of rows to be written."""
        x = self._embeddings(items, "items", owner, batch_size)
        return x, checked_columns(columns_of(items, columns), len(x))

    def _check_new(self, keys: list[Key] | None, owner: str) -> None:
        """ValueError if there is a row with one of the keys."""
        # Rows without keys have no say; in an index of none nothing is found.
        if not keys or not self._gallery.has_keys:
            return
        found = self._gallery.find(keys, owner)
        for key, row_id in zip(keys, found, strict=True):
            if row_id is not None:
                raise ValueError(
                    f"`keys` of {owner} must be new. Received: {key!r}, which "
                    "already exists. Use Index.upsert to replace rows."
                )

    def _ids_of(self, keys: Any, owner: str) -> Rows:
        """Ids of the rows with some keys, (n,); KeyError if one is missing."""
        found = self._gallery.find(keys, owner)
        if None in found:
            key = as_keys(keys, owner)[found.index(None)]
            raise KeyError(
                f"`keys` of {owner} must be keys of rows. Received: {key!r}, "
                "which is not there."
            )
        return np.array(found, np.int64)


def columns_of(items: Any, given: Columns | None) -> Columns:
    """Columns that are given, beside those that images bring along."""
    images = as_image_set(items)
    brought = {} if images is None else image_columns(items, images)
    return {**brought, **as_columns(given)}
