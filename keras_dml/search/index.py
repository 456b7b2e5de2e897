"""Index: the embeddings of a gallery, to be searched."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_dml.data import ImageSet
from keras_dml.evaluation.verification import Threshold, calibrate
from keras_dml.search import saving
from keras_dml.search.contents import Contents
from keras_dml.search.embeddings import Images, as_image_set, embed_images
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import EXACT
from keras_dml.search.hits import Hits
from keras_dml.search.image_columns import image_columns
from keras_dml.search.indexed_rows import IndexedRows
from keras_dml.search.rows import Columns
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import Rows
from keras_dml.utils.unit_embeddings import UnitEmbeddings


class Index(Contents):
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
        indexed = IndexedRows.of(x, columns or {}, factory, parameters)
        super().__init__(indexed, Encoder(model))

    @classmethod
    def build(
        cls,
        model: keras.Model,
        images: Images,
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
            model: From images, pixels in 0 to 255, to embeddings.
            images: An `ImageSet`; or files or pixels, which have no label.
            columns: Further columns, or those to replace.
            factory: See `Index`.
            parameters: See `Index`.
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
        x = self._encoder.units(
            items, self.dim, "items", "Index.add", batch_size
        )
        return self._indexed.add(x, {**named, **(columns or {})})

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
        self._indexed.remove(ids)

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
                length; or images: an `ImageSet`, a path or several, or
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
        x = self._encoder.units(
            queries, self.dim, "queries", "Index.search", batch_size
        ).array
        if exclude is None:
            scores, ids = self._indexed.search(x, k, where)
        else:
            scores, ids = self._indexed.search_others(x, k, where, exclude)
        if threshold is None and self.threshold is not None:
            threshold = self.threshold.value
        return Hits(scores, ids, self._indexed.table, threshold)

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
        if labels is None and isinstance(images, ImageSet):
            labels = images.labels
        x = self._encoder.units(
            images, self.dim, "images", "Index.calibrate", batch_size
        ).array
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
            FileExistsError: If there is something else at `path`.
            OSError: If it cannot be written; what was there still is.
        """
        folder = Path(path).resolve()
        expected = None if overwrite else 0
        if not overwrite and self._origin and self._origin[0] == folder:
            expected = self._origin[1]
        encoder = self._encoder if include_model else None
        version = saving.save(
            folder,
            self._indexed,
            self._encoder.identity,
            self.threshold,
            encoder.model if encoder and encoder.exists else None,
            expected,
        )
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
        folder = Path(path).resolve()
        content = saving.load(folder, verify)
        index = cls.__new__(cls)
        # The arguments of the class are for what is not an index yet.
        Contents.__init__(
            index,
            content.indexed,
            content.encoder,
            content.threshold,
            (folder, content.version),
        )
        if model is not None:
            index._encoder.use(model)
        return index
