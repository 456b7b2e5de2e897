"""Contents: read access to what an index holds."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_dml.search.encoder import Encoder
from keras_dml.search.gallery import Gallery
from keras_dml.search.keys import Key
from keras_dml.search.metrics import MetricName
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows


class Contents:
    """The rows of an index, their embeddings, and the model behind them.

    Args:
        gallery: Stores and searches the rows and their embeddings.
        encoder: Computes embeddings.
    """

    def __init__(self, gallery: Gallery, encoder: Encoder) -> None:
        self._gallery = gallery
        self._encoder = encoder

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
    def store(self) -> str | None:
        """The address of the database; None for an index in memory."""
        return self._gallery.store

    @property
    def types(self) -> dict[str, set[type]]:
        """Types of the values by column, not counting None."""
        return dict(self._gallery.types)

    @property
    def ids(self) -> Rows:
        """Ids of the rows, ascending, (N,)."""
        return self._gallery.table().ids.copy()

    @property
    def keys(self) -> list[Key]:
        """Keys of the rows, or ids if rows have no keys, in the same order."""
        table = self._gallery.table()
        return list(table.keys_of(table.ids))

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Values of the rows by column, in the order of the ids."""
        columns = self._gallery.table().columns
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
        columns = self._gallery.table().columns
        for column in ("name", "label"):
            values = columns.get(column, [None])
            if None not in values:
                return list(values)
        raise ValueError(
            '`labels` of an Index require a column "name" or "label" in which '
            f"every row has a value. Received: columns {list(columns)}."
        )

    def row(self, row_id: int) -> dict[str, Any]:
        """The columns of one row; KeyError if the row does not exist."""
        return self._gallery.table(np.array([row_id])).row(row_id)

    @property
    def model(self) -> keras.Model:
        """The model that embeds images; ValueError if there is none."""
        return self._encoder.model

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
