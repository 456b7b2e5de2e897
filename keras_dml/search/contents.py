"""Contents: what an index holds, to be read."""

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
    """The rows of an index, their embeddings, and the model of these.

    Args:
        gallery: Keeps and finds the rows and their embeddings.
        encoder: Makes embeddings.
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
        """What scores are: "cosine", "dot" or "euclidean"."""
        return self._gallery.metric.name

    @property
    def dim(self) -> int:
        """Dimensions of the embeddings, D."""
        return self._gallery.dim

    @property
    def factory(self) -> str:
        """The kind of index."""
        return self._gallery.factory

    @property
    def parameters(self) -> str:
        """How thoroughly it searches, as its engine calls it."""
        return self._gallery.parameters

    @property
    def store(self) -> str | None:
        """The address of the database that keeps it; None for memory."""
        return self._gallery.store

    @property
    def types(self) -> dict[str, set[type]]:
        """Types of the values by column, without that of None."""
        return dict(self._gallery.types)

    @property
    def ids(self) -> Rows:
        """Ids of the rows, ascending, (N,)."""
        return self._gallery.table().ids.copy()

    @property
    def keys(self) -> list[Key]:
        """Own keys of the rows, or their ids without, in the same order."""
        table = self._gallery.table()
        return list(table.keys_of(table.ids))

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Values of the rows by column, in the order of the ids."""
        columns = self._gallery.table().columns
        return {name: list(values) for name, values in columns.items()}

    @property
    def embeddings(self) -> FloatArray:
        """The embeddings as they are compared, (N, D), in the order of the ids.

        For cosines they are of unit length.
        """
        return self._gallery.vectors.copy()

    @property
    def labels(self) -> list[Any]:
        """What is in each image: its "name", or its "label" without names.

        Raises:
            ValueError: If there is neither column for every row.
        """
        columns = self._gallery.table().columns
        for column in ("name", "label"):
            values = columns.get(column, [None])
            if None not in values:
                return list(values)
        raise ValueError(
            '`labels` of an Index are its column "name" or "label", and every '
            f"row must have one. Received: columns {list(columns)}."
        )

    def row(self, row_id: int) -> dict[str, Any]:
        """The columns of one row; KeyError if there is no such row."""
        return self._gallery.table(np.array([row_id])).row(row_id)

    @property
    def model(self) -> keras.Model:
        """The model that embeds images; ValueError if there is none."""
        return self._encoder.model

    def _embeddings(
        self, items: Any, name: str, owner: str, batch_size: int
    ) -> Embeddings:
        """Of images or of embeddings, the argument `name` of `owner`."""
        found = self._encoder.embed(items, name, owner, batch_size)
        x = items if found is None else found
        return self._gallery.metric.given(x, self.dim, name, owner)
