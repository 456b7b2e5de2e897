"""Index: a gallery, built, saved and loaded."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from keras_dml.embedding import EmbeddingShards
from keras_dml.embedding.engines import KERAS, Engine, check_engine
from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.search import store
from keras_dml.search.contents import class_columns, columns_of
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import EXACT, IndexSpec, make_index, set_parameters
from keras_dml.search.gallery import Gallery, check_values
from keras_dml.search.metrics import COSINE, MetricName, Similarity, library
from keras_dml.search.pictures import as_image_set, thumbnail_column
from keras_dml.search.rows import Columns, as_columns
from keras_dml.search.searches import Searches
from keras_dml.search.table import arrow_table
from keras_dml.utils.removed import explain_removed

if TYPE_CHECKING:
    import pyarrow


class Index(Searches):
    """A searchable gallery of embeddings.

    Every image is a row with columns, such as its path and label, and an id
    that is never reused. Rows can also have your own keys, such as article
    numbers. Every argument called `keys` takes these keys, or ids if the rows
    have no keys. Unless `factory` says otherwise, searches are exact, and
    results do not depend on the number of threads or on batching.

    Args:
        embeddings: (N, D); N may be 0. Or `EmbeddingShards`, which are read one
            shard at a time and have columns of their own; their ids become the
            keys.
        columns: Values of the rows by column, N each: text, finite numbers,
            booleans, None, or lists of these. Or a table of pandas, whose
            missing values become None.
        keys: Unique keys of the N rows, all strings or all integers; or the
            name of the column that holds them.
        metric: The metric of the scores. "cosine": the cosine similarity, for
            which embeddings are scaled to unit length; "dot": the dot product;
            "euclidean": the negative distance, so that here, too, higher is
            nearer.
        factory: The kind of index. "Flat" is exact; other faiss factory
            strings, such as "IVF4096,PQ32" and "HNSW32", are faster or smaller
            but miss some neighbors, see `recall`. "SQfp16" and "SQ8" keep a
            half and a quarter of each number; with "RaBitQ,RFlat" a bit of
            each finds candidates that whole vectors rank.
        parameters: How thoroughly to search, in the notation of faiss:
            "nprobe=32" for IVF, "efSearch=64" for HNSW. By default, nprobe is
            the square root of the number of lists and efSearch is 64.
        labels: Class of every row, (N,) integers or strings, which become the
            columns "label" and, for strings, "name".
        model: The model that computed the embeddings. It is needed to search by
            image.

    Attributes:
        threshold: The score from which a hit counts as a match; None until the
            index is calibrated.

    Raises:
        ValueError: If embeddings are not finite or are zero, if lengths differ,
            or if faiss cannot build this kind of index.

    Example:
        ```python
        index = dml.search.Index(embeddings, {"price": prices}, labels=labels)
        hits = index.search(embeddings[:5], k=3, where={"price": {"<": 20}})
        index.save("gallery")
        ```

    Also known as:
        - pytorch-metric-learning: `InferenceModel`.
        - TF Similarity: `Indexer`.
    """

    @explain_removed("Index")
    def __init__(
        self,
        embeddings: Any,
        columns: Columns | None = None,
        *,
        keys: Any = None,
        metric: MetricName = COSINE,
        factory: str = EXACT,
        parameters: str | None = None,
        labels: Any = None,
        model: keras.Model | None = None,
    ) -> None:
        encoder = Encoder()
        if model is not None:
            encoder.use(model)
        if labels is not None:
            columns = {**class_columns(labels), **as_columns(columns)}
        if isinstance(embeddings, EmbeddingShards):
            encoder.expect(embeddings.model)
        spec = IndexSpec(Similarity(metric), factory, parameters)
        self._use(Gallery.build(embeddings, columns, keys, spec), encoder)

    def _use(
        self,
        gallery: Gallery,
        encoder: Encoder,
        threshold: AnyThreshold | None = None,
    ) -> None:
        self._gallery, self._encoder = gallery, encoder
        self.threshold = threshold
        # The folder that it was read from or saved in, and its version there.
        self._origin: tuple[Path | None, str | None] = None, None

    @classmethod
    @explain_removed("Index.build")
    def build(
        cls,
        model: keras.Model,
        images: Any,
        columns: Columns | None = None,
        *,
        keys: Any = None,
        metric: MetricName = COSINE,
        factory: str = EXACT,
        parameters: str | None = None,
        batch_size: int = 256,
        thumbnails: bool = False,
        engine: Engine = KERAS,
    ) -> "Index":
        """Embeds a gallery and builds its index.

        Rows get the column "path" for files, and "label", "name", "source" and
        "box" for sets with labels, class names, ids and boxes.

        Args:
            model: A model that maps its inputs, for images pixels from 0 to
                255, to embeddings.
            images: An `ImageSet`, `ArraySet` or other `Examples`, with or
                without labels; or images in any form that `search` accepts,
                which have no label.
            columns: Further columns, or replacements for those above.
            keys, metric, factory, parameters: As for `Index`, for instance
                `keys="source"`.
            batch_size: Number of images embedded at a time.
            thumbnails: Whether rows get the column "thumbnail", with a small
                picture of the image, about 10 kB, that pages show wherever the
                index is.
            engine: What embeds the images: "keras", "openvino", an exported
                file or a function; see `embed`.

        Raises:
            ImportError: If the extra "openvino" is required but not installed.
            ValueError: As for `Index`, or if `images` are not images.
        """
        check_engine("Index.build", engine)
        encoder = Encoder()
        encoder.use(model)
        spec = IndexSpec(Similarity(metric), factory, parameters)
        # Before time is spent on embedding.
        if (dim := encoder.dim) is not None:
            set_parameters(make_index(dim, spec), spec)
        values = columns_of(images, columns)
        if (image_set := as_image_set(images)) is not None:
            check_values(values, keys, len(image_set))
        if thumbnails:
            sets = encoder.sets(images, "images", "Index.build") or []
            pictures = thumbnail_column(sets)
            if not pictures:
                raise ValueError(
                    "`thumbnails` of Index.build requires images. Received: "
                    f"thumbnails=True for a {type(images).__name__}. Leave it "
                    "out."
                )
            values = {**pictures, **values}
        x = encoder.embed(images, "images", "Index.build", batch_size, engine)
        if x is None:
            raise ValueError(
                "`images` of Index.build must be a set such as ImageSet or "
                "ArraySet, files, texts or uint8 pixels. Received: "
                f"{type(images).__name__}. Use Index(embeddings) for "
                "embeddings, and keras_dml.data.from_dataset for a "
                "tf.data.Dataset or a PyDataset."
            )
        index = cls.__new__(cls)
        index._use(Gallery.build(x, values, keys, spec), encoder)
        return index

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        include_model: bool = True,
    ) -> None:
        """Writes the index to a folder, atomically.

        The folder then has `index.json`, which says what it is, and `data`,
        with the faiss index, the rows as JSON and the model. Only files that
        `index.json` lists are ever removed.

        Args:
            path: A new folder, or the one this index was loaded from.
            overwrite: Whether to replace a different index in this folder, or
                one that another process has changed in the meantime.
            include_model: Whether to store the model in the folder as well,
                which can then be searched by image without anything else.

        Raises:
            FileExistsError: If `path` is a link, or holds other files or an
                index that cannot be read. Nothing is touched in this case.
            OSError: If the index cannot be written. The previous content is
                kept.
        """
        encoder = self._encoder
        folder = store.folder_at(path)
        engine, rows = self._gallery.engine, self._gallery.rows
        content = store.Content(
            dim=self.dim,
            rows=len(rows),
            next_id=rows.next_id,
            hidden=tuple(engine.hidden.tolist()),
            factory=self.factory,
            parameters=self.parameters,
            recall=self.recall,
            threshold=self.threshold,
            model=encoder.identity,
            faiss=library().__version__,
            metric=self.metric,
        )
        writers = {store.ROWS: rows.write, store.VECTORS: engine.write}
        if include_model and encoder.exists:
            writers[store.MODEL] = encoder.unchanged("Index.save").save
        origin, origin_version = self._origin
        version = origin_version if origin == folder else None
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
            model: The model that computed the embeddings; by default, the one
                in the folder, which is loaded when it is needed.
            verify: Whether to verify the checksums of the files.

        Raises:
            FileNotFoundError: If there is no index in the folder.
            ValueError: If it is damaged or of an unknown version, or if `model`
                is not the one that computed the embeddings.
        """
        folder = store.folder_at(path)
        version, content, engine, rows, file = store.load(folder, verify)
        encoder = Encoder(identity=content.model, file=file)
        index = cls.__new__(cls)
        gallery = Gallery(engine, rows, content.recall)
        index._use(gallery, encoder, content.threshold)
        index._origin = (folder, version)
        if model is not None:
            encoder.use(model)
        return index

    def table(self) -> "pyarrow.Table":
        """Returns the rows as an Arrow table, for databases and data frames.

        Its columns are "key", which holds ids where rows have no keys,
        "vector", lists of D numbers, and those of the index.

        Raises:
            ValueError: If the values of a column have several types, or the
                kind of index does not keep vectors that can be read.
        """
        return arrow_table(self.keys, self.embeddings, self.columns)

    @property
    def model(self) -> keras.Model | None:
        """The model that computed the embeddings, loaded on access; or None.

        Raises:
            FileNotFoundError: If the index has been saved again in the
                meantime.
            ValueError: If the file of the model is damaged.
        """
        return self._encoder.model if self._encoder.exists else None

    def __repr__(self) -> str:
        parts = [f"{len(self):,} × {self.dim}", self.factory, self.metric]
        if self._gallery.rows.keys is not None:
            parts.append("own keys")
        if names := list(self._gallery.rows.columns):
            parts.append(f"columns {', '.join(names)}")
        if self.threshold is not None:
            parts.append(f"threshold {self.threshold.value:.4f}")
        return f"Index({'; '.join(parts)})"
