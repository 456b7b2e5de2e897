"""Index: a gallery, built, saved and loaded, or pushed into a database."""

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_dml.embedding import EmbeddingShards
from keras_dml.embedding.engines import KERAS, Engine, check_engine
from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.search import pushing, store
from keras_dml.search.contents import class_columns, columns_of
from keras_dml.search.database import BATCH
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import EXACT, FLOAT32, Form, make, set_parameters
from keras_dml.search.gallery import (
    Gallery,
    LocalGallery,
    Recall,
    built,
    check_shards,
    checked_values,
)
from keras_dml.search.metrics import COSINE, Metric, MetricName, library
from keras_dml.search.pictures import as_image_set, thumbnail_column
from keras_dml.search.pushing import Pushed, database_at, is_database
from keras_dml.search.rescored import Rescored
from keras_dml.search.rows import Columns, as_columns
from keras_dml.search.searches import Searches
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import Precision


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
            but miss some neighbors, see `recall`.
        parameters: How thoroughly to search, in the notation of faiss:
            "nprobe=32" for IVF, "efSearch=64" for HNSW. By default, nprobe is
            the square root of the number of lists and efSearch is 64.
        precision: How vectors are kept in memory to be searched: "float32",
            "float16", "int8" (a quarter) or "binary" (a bit per number). With
            another than "float32", more candidates than asked for, by default
            2, 2 and 20 times as many ("k_factor_rf=20" in `parameters`), are
            found in this precision. Whole vectors, which stay on the disk, then
            decide which are the nearest, and their scores: in a temporary file,
            where TMPDIR says, or of an index that was loaded, in its folder.
            In a database, "int8" and "binary" with "IVF1024,Flat" are
            "IVF1024,SQ8" and "IVF1024,RaBitQ"; Milvus does not rank again.
        labels: Class of every row, (N,) integers or strings, which become the
            columns "label" and, for strings, "name".
        model: The model that computed the embeddings. It is needed to search by
            image.
        store: The address of a database to keep the rows in, such as
            "lancedb://FOLDER/TABLE"; by default, rows are kept in memory. The
            table must be new, or begun by the same call.

    Attributes:
        threshold: The score from which a hit counts as a match; None until the
            index is calibrated.
        recall: How much the index missed when it was built; None for exact
            indexes and in databases.

    Raises:
        FileExistsError: If `store` holds something else.
        ImportError: If the extra for the database is not installed.
        OSError: If the database cannot be reached.
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

    def __init__(
        self,
        embeddings: Any,
        columns: Columns | None = None,
        *,
        keys: Any = None,
        metric: MetricName = COSINE,
        factory: str = EXACT,
        parameters: str | None = None,
        precision: Precision = FLOAT32,
        labels: Any = None,
        model: keras.Model | None = None,
        store: str | None = None,
    ) -> None:
        encoder = Encoder()
        if model is not None:
            encoder.use(model)
        if labels is not None:
            columns = {**class_columns(labels), **as_columns(columns)}
        form = Form(Metric(metric), factory, parameters, precision)
        self._fill((embeddings, columns, keys), form, encoder, store)

    def _fill(
        self,
        given: tuple[Any, Columns | None, Any],
        form: Form,
        encoder: Encoder,
        store: str | None,
    ) -> None:
        if store is None:
            self._over(*built(given, form, encoder), encoder)
        else:
            rows = pushing.filled(given, form, encoder, store)
            self._over(rows, None, encoder)

    def _over(
        self,
        gallery: Gallery,
        missed: Recall | None,
        encoder: Encoder,
        threshold: AnyThreshold | None = None,
    ) -> None:
        self._gallery, self._encoder = gallery, encoder
        self.recall, self.threshold = missed, threshold
        # The folder that it was read from or saved in, and as what version.
        self._origin: tuple[Path | None, str | None] = None, None

    @classmethod
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
        precision: Precision = FLOAT32,
        batch_size: int = 256,
        store: str | None = None,
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
            keys, metric, factory, parameters, precision, store: As for
                `Index`, for instance `keys="source"`.
            batch_size: Number of images embedded at a time.
            thumbnails: Whether rows get the column "thumbnail", with a small
                picture of the image, about 10 kB, that pages show wherever the
                index is.
            engine: What embeds the images, "keras" or "openvino"; see `embed`.

        Raises:
            ImportError: If the extra "openvino" is required but not installed.
            ValueError: As for `Index`, or if `images` are not images.
        """
        check_engine("Index.build", engine)
        encoder = Encoder()
        encoder.use(model)
        form = Form(Metric(metric), factory, parameters, precision)
        if store is None:
            # Before time is spent on embedding.
            if (dim := encoder.dim) is not None:
                set_parameters(make(dim, form), form)
        else:
            pushing.check_kind(store, form, "Index")
        given = columns_of(images, columns)
        if (known := as_image_set(images)) is not None:
            checked_values(given, keys, len(known))
        if thumbnails:
            sets = encoder.sets(images, "images", "Index.build") or []
            pictures = thumbnail_column(sets)
            if not pictures:
                raise ValueError(
                    "`thumbnails` of Index.build requires images. Received: "
                    f"thumbnails=True for a {type(images).__name__}. Leave it "
                    "out."
                )
            given = {**pictures, **given}
        how = "images", "Index.build", batch_size, engine
        x = encoder.embed(images, *how)
        if x is None:
            raise ValueError(
                "`images` of Index.build must be a set such as ImageSet or "
                "ArraySet, files, texts or uint8 pixels. Received: "
                f"{type(images).__name__}. Use Index(embeddings) for "
                "embeddings, and keras_dml.data.from_dataset for a "
                "tf.data.Dataset or a PyDataset."
            )
        index = cls.__new__(cls)
        index._fill((x, given, keys), form, encoder, store)
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
        gallery, encoder = self._gallery, self._encoder
        if not isinstance(gallery, LocalGallery):
            raise ValueError(
                f"Index.save requires an index in memory. Received: {self!r}, "
                "which its database keeps up to date. Use open_index(uri) to "
                "open it again."
            )
        folder = store.folder_at(path)
        engine, rows = gallery.engine, gallery.rows
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
            faiss=library().__version__,
            metric=self.metric,
            precision=self.precision,
        )
        writers = {store.ROWS: rows.write, store.VECTORS: engine.write}
        if isinstance(engine, Rescored):
            writers[store.FLOATS] = engine.floats.write
        if include_model and encoder.exists:
            writers[store.MODEL] = encoder.unchanged("Index.save").save
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

        One of format 3, without keys and metrics, is saved again as format 4.

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
        index._over(
            LocalGallery(engine, rows),
            content.recall,
            encoder,
            content.threshold,
        )
        index._origin = (folder, version)
        if model is not None:
            encoder.use(model)
        return index

    @classmethod
    def open(cls, uri: str, model: keras.Model | None = None) -> "Index":
        """Opens an index in a database; see `open_index`."""
        gallery = database_at(uri, "open_index")
        gallery.open()
        state = gallery.state
        encoder = Encoder(identity=state.model)
        if model is not None:
            encoder.use(model)
        index = cls.__new__(cls)
        index._over(gallery, None, encoder, state.threshold)
        return index

    def push(
        self,
        uri: str,
        *,
        factory: str = EXACT,
        parameters: str | None = None,
        overwrite: bool = False,
        batch_size: int = BATCH,
    ) -> Pushed:
        """Copies the index into a database; see `push`."""
        return push(
            self,
            uri,
            factory=factory,
            parameters=parameters,
            overwrite=overwrite,
            batch_size=batch_size,
        )

    @property
    def model(self) -> keras.Model | None:
        """The model that computed the embeddings, loaded on access; or None.

        Raises:
            FileNotFoundError: If the index has been saved again in the
                meantime.
            ValueError: If the file of the model is damaged.
        """
        return self._encoder.model if self._encoder.exists else None

    def close(self) -> None:
        """Releases connections, servers and files of a database."""
        self._gallery.close()

    def __repr__(self) -> str:
        parts = [f"{len(self):,} × {self.dim}", self.factory, self.metric]
        if self.precision != FLOAT32:
            parts.append(self.precision)
        if self._gallery.has_keys:
            parts.append("own keys")
        if names := self._gallery.names:
            parts.append(f"columns {', '.join(names)}")
        if self.threshold is not None:
            parts.append(f"threshold {self.threshold.value:.4f}")
        return f"Index({'; '.join(parts)})"


def push(
    source: Index | EmbeddingShards,
    uri: str,
    *,
    keys: str | None = None,
    metric: MetricName | None = None,
    factory: str = EXACT,
    parameters: str | None = None,
    overwrite: bool = False,
    batch_size: int = BATCH,
) -> Pushed:
    """Copies an index, or sharded embeddings, into a database.

    Rows keep their ids. If a push of shards was interrupted, the same call
    resumes it; if all rows are already there, it writes nothing.

    Args:
        source: An exact index, or `EmbeddingShards`, which are read one shard
            at a time.
        uri: "lancedb://FOLDER/TABLE", "lancedb+s3://BUCKET/PATH/TABLE",
            "milvus://HOST:PORT/COLLECTION", "milvus+https://…" with the
            token in the environment variable MILVUS_TOKEN, or
            "milvus://FOLDER/FILE.db/COLLECTION".
        keys: For shards, the column that holds the keys; by default, the ids
            are used.
        metric: For shards, the similarity metric, by default "cosine"; see
            `Index`.
        factory, parameters: The kind of index that the database builds: "Flat",
            "IVF1024,Flat", "IVF1024,SQ8", "IVF1024,RaBitQ" (not of Milvus
            Lite), "IVF1024,PQ16" or "HNSW32".
        overwrite: Whether to replace an existing keras_dml index. Data that was
            not written by keras_dml is never touched.
        batch_size: Number of rows written at a time.

    Returns:
        A summary of what was written.

    Raises:
        FileExistsError: If the address already holds something else.
        ImportError: If the extra for that database is not installed.
        OSError: If the database cannot be reached, or does not hold what was
            written.
        ValueError: If an argument is invalid, or the database cannot store
            these rows.
    """
    check_count("push", "batch_size", batch_size)
    gallery = database_at(uri, "push")
    if isinstance(source, EmbeddingShards):
        column = check_shards(source, None, keys)
        by = Metric(COSINE if metric is None else metric)
        rows = pushing.Source.of_shards(source, by, column, source.model)
    else:
        if (keys, metric) != (None, None):
            raise ValueError(
                "`keys` and `metric` of push must only be given for "
                "EmbeddingShards; an index has its own. Received: "
                f"keys={keys!r}, metric={metric!r}."
            )
        rows = pushing.Source.of_gallery(
            source._gallery, source._encoder.identity, source.threshold
        )
    pushed = pushing.copy(
        rows, gallery, factory, parameters, overwrite, batch_size
    )
    gallery.close()
    return pushed


def open_index(
    uri: str | os.PathLike[str], model: keras.Model | None = None
) -> Index:
    """Opens an index in a folder or a database.

    Args:
        uri: A folder, or an address as for `push`.
        model: The model that computed the embeddings. A folder contains it; a
            database only records its identity, so pass the model here if you
            want to search by image.

    Raises:
        FileNotFoundError: If there is no index.
        ImportError: If the extra for that database is not installed.
        OSError: If the database cannot be reached.
        ValueError: If the index is damaged or incomplete, if the address holds
            something else, or if `model` is not the one that computed the
            embeddings.
    """
    if is_database(uri):
        return Index.open(str(uri), model)
    return Index.load(uri, model)
