"""Index: the embeddings of a gallery, to be searched.

One class in one long file, which is mostly the reference of its methods.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_dml.data.examples import Examples
from keras_dml.data.imageset import (
    GivenImages,
    as_image_set,
    image_columns,
)
from keras_dml.evaluation.verification import Threshold, calibrate
from keras_dml.search import faiss_kinds, recall, store
from keras_dml.search.encoder import Encoder, embed_images
from keras_dml.search.engine import EXACT, Engine
from keras_dml.search.hits import NONE, Hits
from keras_dml.search.rows import Columns, RowTable
from keras_dml.utils.arguments import check_count
from keras_dml.utils.arrays import UnitEmbeddings
from keras_dml.utils.types import FloatArray, Rows


class Index:
    """The unit embeddings of a gallery, searched by cosine similarity.

    Every image has a row with columns, such as its path and label, and an
    id that no other row is ever given. Searches are exact and depend on
    neither threads nor batches, unless `factory` says otherwise.

    Args:
        embeddings: (N, D); they are brought to unit length. N may be 0.
        columns: Values of the rows by column, N each: text, numbers,
            booleans or None.
        factory: Kind of index: "Flat" is exact; other factory strings of
            faiss, such as "IVF4096,PQ32" and "HNSW32", are faster or
            smaller and miss something, see `recall`.
        parameters: How thoroughly it searches, as faiss calls it:
            "nprobe=32" of IVF, "efSearch=64" of HNSW. By default the
            square root of the number of lists, and 64.
        model: The model that made the embeddings; without it, there is
            no searching by image.

    Attributes:
        threshold: From which score on two images are of one class; None
            before it is calibrated.
        recall: What it missed when it was built; None for exact ones.

    Raises:
        ValueError: If embeddings are not finite or zero, if lengths
            differ, or if faiss cannot make such an index.
    """

    def __init__(
        self,
        embeddings: Any,
        columns: Columns | None = None,
        *,
        factory: str = EXACT,
        parameters: str | None = None,
        model: keras.Model | None = None,
    ) -> None:
        x = UnitEmbeddings(embeddings, None, "embeddings", "Index")
        self.threshold: Threshold | None = None
        self._rows = RowTable()
        # Before time is spent on training.
        values = self._rows.check(columns or {}, len(x))
        self._encoder = Encoder(model)
        self._engine = Engine.trained(x, factory, parameters)
        ids = self._insert(x, values)
        self.recall: recall.Recall | None = None
        if not self._engine.is_exact:
            self.recall = recall.measure(self._engine, x.array, ids)
        # The folder that it was read from or saved in, and as what version.
        self._origin: tuple[Path | None, str | None] = None, None

    @classmethod
    def build(
        cls,
        model: keras.Model,
        images: GivenImages,
        columns: Columns | None = None,
        *,
        factory: str = EXACT,
        parameters: str | None = None,
        batch_size: int = 256,
    ) -> "Index":
        """Embeds a gallery and makes its index.

        Rows get the columns "path" of files, and "label", "name", "source"
        and "box" of a set with labels, names of classes, ids and boxes.

        Args:
            model: From inputs, pixels of images in 0 to 255, to embeddings.
            images: An `ImageSet`, `ArraySet` or other `Examples`, with labels
                or without; or files or pixels, which have no label.
            columns: Further columns, or those to replace.
            factory, parameters: As for `Index`.
            batch_size: Images embedded at a time.

        Raises:
            ValueError: As for `Index`, or if `images` are no images.
        """
        given = as_image_set(images)
        if given is None:
            raise ValueError(
                "`images` of Index.build must be an ImageSet, files or uint8 "
                f"pixels. Received: {type(images).__name__}. Embeddings make "
                "an index by Index(embeddings)."
            )
        return cls(
            embed_images(model, given, batch_size),
            {**image_columns(images, given), **(columns or {})},
            factory=factory,
            parameters=parameters,
            model=model,
        )

    def add(
        self, items: Any, columns: Columns | None = None, batch_size: int = 256
    ) -> Rows:
        """Adds rows.

        Args:
            items: Images, as for `build`, or embeddings, (N, D) or (D,).
            columns: Values of the rows by column. Columns that the other
                rows lack are None there, and the other way round.
            batch_size: Images embedded at a time.

        Returns:
            The ids of the rows, (N,).

        Raises:
            ValueError: As for `Index`; then nothing was added.
        """
        images = as_image_set(items)
        named = {} if images is None else image_columns(items, images)
        x = self._units(items, "items", "Index.add", batch_size)
        values = self._rows.check({**named, **(columns or {})}, len(x))
        return self._insert(x, values)

    def _units(
        self, items: Any, name: str, owner: str, batch_size: int
    ) -> UnitEmbeddings:
        """Of images or of embeddings, the argument `name` of `owner`."""
        images = as_image_set(items)
        if images is not None:
            items = embed_images(self.model, images, batch_size)
        return UnitEmbeddings(items, self.dim, name, owner)

    def _insert(self, x: UnitEmbeddings, values: dict[str, list[Any]]) -> Rows:
        next_id = self._rows.next_id
        # It may refuse, and nothing must have been added then.
        self._engine.add(x, np.arange(next_id, next_id + len(x)))
        return self._rows.add(values, len(x))

    def remove(self, ids: Any) -> None:
        """Removes rows; their ids are not given again.

        Kinds of index that cannot remove, such as HNSW, only hide the
        vectors, which stay in memory and in the file.

        Args:
            ids: Ids of rows, or one id.

        Raises:
            KeyError: If there is no such row; then nothing was removed.
            ValueError: If this kind of index can do neither.
        """
        chosen = np.unique(np.atleast_1d(np.asarray(ids, np.int64)))
        known = np.isin(chosen, self._rows.ids)
        if not known.all():
            raise KeyError(
                "`ids` of Index.remove must be ids of rows. Received: "
                f"{int(chosen[~known][0])}, which is not there."
            )
        self._engine.remove(chosen)
        self._rows.remove(chosen)

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
        exclude: Any = None,
        threshold: float | None = None,
        batch_size: int = 256,
    ) -> Hits:
        """The k most similar images of each query.

        Args:
            queries: Embeddings, (Q, D) or (D,), which are brought to unit
                length; or examples: a set of them, a path or several, or
                uint8 pixels, (H, W), (H, W, C) or (Q, H, W, C).
            k: How many; there are fewer where the gallery has fewer.
            where: Values that columns must have: `{"name": "crow"}`, or
                `{"label": [3, 4]}` for any of several.
            exclude: Id of a row that each query must not find, (Q,): its
                own.
            threshold: The score from which a hit is a match; by default
                that of `calibrate`, if there is one.
            batch_size: Images embedded at a time.

        Raises:
            ValueError: If queries are not finite, zero or of another
                dimension, if there is no model for images, or if another
                argument is not as described.
        """
        k = check_count("Index.search", "k", k)
        x = self._units(queries, "queries", "Index.search", batch_size).array
        among = None
        if where is not None:
            among = self._rows.where(where)
        elif len(self._engine) != len(self._rows):
            among = self._rows.ids
        has_own = exclude is not None
        scores, ids = self._engine.search(x, k + has_own, among)
        if has_own:
            scores, ids = _without(exclude, scores, ids)
        if threshold is None and self.threshold is not None:
            threshold = self.threshold.value
        return Hits(scores, ids, self._rows, threshold)

    def calibrate(
        self,
        images: Any,
        labels: Any = None,
        criterion: str = "eer",
        *,
        batch_size: int = 256,
        **options: Any,
    ) -> Threshold:
        """Calibrates the score from which two images are of one class.

        Args:
            images: Of classes that the model was not trained on: an
                `ImageSet`, or embeddings, (N, D).
            labels: Their classes, (N,); by default those of the set.
            criterion: See `keras_dml.search.calibrate`.
            batch_size: Images embedded at a time.
            **options: Further arguments of `keras_dml.search.calibrate`.

        Returns:
            The threshold, which is also kept and saved.
        """
        if labels is None and isinstance(images, Examples):
            labels = images.labels
        x = self._units(images, "images", "Index.calibrate", batch_size).array
        self.threshold = calibrate(x, labels, criterion, **options)
        return self.threshold

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        include_model: bool = True,
    ) -> None:
        """Writes the index into a folder, whole or not at all.

        Args:
            path: A new folder, or that from which this index was loaded.
            overwrite: Whether to replace another index that is there, or
                one that another process has changed meanwhile.
            include_model: Whether the folder also holds the model, and is
                then all that searching by image takes.

        Raises:
            FileExistsError: If there is anything else at `path`, a link, or
                an index that cannot be read; then nothing was touched.
            OSError: If it cannot be written; what was there still is.
        """
        folder = store.folder_at(path)
        engine, rows, encoder = self._engine, self._rows, self._encoder
        content = store.Content(
            dim=self.dim,
            rows=len(rows),
            next_id=rows.next_id,
            hidden=tuple(engine.ids[~np.isin(engine.ids, rows.ids)].tolist()),
            factory=self.factory,
            parameters=self.parameters,
            recall=self.recall,
            threshold=self.threshold,
            model=encoder.identity,
            faiss=faiss_kinds.library().__version__,
        )
        writers = {store.ROWS: rows.write, store.VECTORS: engine.write}
        if include_model and encoder.exists:
            writers[store.MODEL] = encoder.model.save
        origin, known = self._origin
        version = known if origin == folder else None
        version = store.save(folder, content, writers, version, overwrite)
        self._origin = (folder, version)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: keras.Model | None = None,
        verify: bool = True,
    ) -> "Index":
        """Reads an index from its folder.

        Args:
            path: The folder.
            model: The model that made it; by default the one in the folder,
                which is read when it is needed.
            verify: Whether to compare checksums of the files.

        Raises:
            FileNotFoundError: If there is no index.
            ValueError: If it is damaged or of another kind, or the model
                is another one.
        """
        folder = store.folder_at(path)
        version, content, engine, rows, file = store.load(folder, verify)
        index = cls(np.empty((0, engine.dim)))
        index._engine, index._rows = engine, rows
        index._encoder = Encoder(identity=content.model, file=file)
        index.recall, index.threshold = content.recall, content.threshold
        index._origin = (folder, version)
        if model is not None:
            index._encoder.use(model)
        return index

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Index({len(self):,} × {self.dim}, {self.factory})"

    @property
    def dim(self) -> int:
        """Dimensions of the embeddings, D."""
        return self._engine.dim

    @property
    def factory(self) -> str:
        """The kind of index."""
        return self._engine.factory

    @property
    def parameters(self) -> str:
        """How thoroughly it searches, as faiss calls it."""
        return self._engine.parameters

    @property
    def ids(self) -> Rows:
        """Ids of the rows, ascending, (N,)."""
        return self._rows.ids.copy()

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Values of the rows by column, in the order of the ids."""
        columns = self._rows.columns
        return {name: list(values) for name, values in columns.items()}

    @property
    def embeddings(self) -> FloatArray:
        """The unit embeddings, (N, D), in the order of the ids."""
        if not self._engine.is_exact:
            raise ValueError(
                f"`factory` of an Index must be {EXACT!r} to get its "
                f"embeddings back. Received: factory={self.factory!r}, which "
                "does not keep them as they were."
            )
        return self._engine.vectors.copy()

    @property
    def labels(self) -> list[Any]:
        """What is in each image: its "name", or its "label" without names.

        Raises:
            ValueError: If there is neither column for every row.
        """
        for column in ("name", "label"):
            values = self._rows.columns.get(column, [None])
            if None not in values:
                return list(values)
        raise ValueError(
            '`labels` of an Index are its column "name" or "label", and every '
            f"row must have one. Received: columns {list(self.columns)}."
        )

    def row(self, row_id: int) -> dict[str, Any]:
        """The columns of one row; KeyError if there is no such row."""
        return self._rows.row(row_id)

    @property
    def model(self) -> keras.Model:
        """The model that embeds images; ValueError if there is none."""
        return self._encoder.model


def _without(
    own: Any, scores: FloatArray, ids: Rows
) -> tuple[FloatArray, Rows]:
    """What was found for each query, less one, without its own row."""
    own = np.atleast_1d(np.asarray(own))
    if own.dtype.kind not in "iu" or own.shape != (len(ids),):
        raise ValueError(
            "`exclude` of Index.search must be one id for each query. "
            f"Received: exclude of shape {own.shape} and dtype {own.dtype} "
            f"for {len(ids)} queries."
        )
    is_own = ids == own[:, None]
    scores[is_own], ids[is_own] = -np.inf, NONE
    # Last, and the others keep their order.
    order = np.argsort(is_own, axis=1, kind="stable")[:, :-1]
    return (
        np.take_along_axis(scores, order, axis=1),
        np.take_along_axis(ids, order, axis=1),
    )
