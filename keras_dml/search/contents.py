"""Contents: what an index is made of, for looking at."""

from pathlib import Path
from typing import Any

import keras

from keras_dml.evaluation.verification import Threshold
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import EXACT
from keras_dml.search.indexed_rows import IndexedRows
from keras_dml.search.recall import Recall
from keras_dml.utils.types import FloatArray, Rows


class Contents:
    """The rows of an index, its kind, its model and its threshold.

    Args:
        indexed: Vectors and rows.
        encoder: The model.
        threshold: The calibrated threshold, if there is one.
        origin: The folder that it was read from or written to last, and
            as what version.

    Attributes:
        threshold: From which score on two images are of one class; None
            before it is calibrated.
    """

    def __init__(
        self,
        indexed: IndexedRows,
        encoder: Encoder,
        threshold: Threshold | None = None,
        origin: tuple[Path, int] | None = None,
    ) -> None:
        self.threshold = threshold
        self._indexed = indexed
        self._encoder = encoder
        self._origin = origin

    def __len__(self) -> int:
        return len(self._indexed.table)

    def __repr__(self) -> str:
        return f"Index({len(self):,} × {self.dim}, {self.factory})"

    @property
    def dim(self) -> int:
        """Dimensions of the embeddings, D."""
        return self._indexed.engine.dim

    @property
    def factory(self) -> str:
        """The kind of index."""
        return self._indexed.factory

    @property
    def parameters(self) -> str:
        """How thoroughly it searches, as faiss calls it."""
        return self._indexed.parameters

    @property
    def recall(self) -> Recall | None:
        """What it missed when it was built; None for exact ones."""
        return self._indexed.recall

    @property
    def ids(self) -> Rows:
        """Ids of the rows, ascending, (N,)."""
        return self._indexed.table.ids.copy()

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Values of the rows by column, in the order of the ids."""
        columns = self._indexed.table.columns
        return {name: list(values) for name, values in columns.items()}

    @property
    def embeddings(self) -> FloatArray:
        """The unit embeddings, (N, D), in the order of the ids.

        Raises:
            ValueError: If this kind of index does not keep them.
        """
        if not self._indexed.engine.is_exact:
            raise ValueError(
                f"`factory` of an Index must be {EXACT!r} to get its "
                f"embeddings back. Received: factory={self.factory!r}, which "
                "does not keep them as they were."
            )
        return self._indexed.engine.vectors.copy()

    @property
    def labels(self) -> list[Any]:
        """What is in each image: its "name", or its "label" without names.

        Raises:
            ValueError: If there is neither column for every row.
        """
        for column in ("name", "label"):
            values = self._indexed.table.columns.get(column, [None])
            if None not in values:
                return list(values)
        raise ValueError(
            '`labels` of an Index are its column "name" or "label", and every '
            f"row must have one. Received: columns {list(self.columns)}."
        )

    def row(self, row_id: int) -> dict[str, Any]:
        """The columns of one row.

        Raises:
            KeyError: If there is no such row.
        """
        return self._indexed.table.row(row_id)

    @property
    def model(self) -> keras.Model:
        """The model that embeds images for this index.

        Raises:
            ValueError: If there is none.
        """
        return self._encoder.model
