"""Index: the embeddings of a gallery, built, saved and loaded."""

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_dml.evaluation.verification import Threshold
from keras_dml.search import building, faiss_kinds, store
from keras_dml.search.changes import Changes, columns_of
from keras_dml.search.copying import BATCH, Pushed
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import EXACT
from keras_dml.search.gallery import Gallery
from keras_dml.search.local import LocalGallery
from keras_dml.search.metrics import COSINE, Metric, MetricName
from keras_dml.search.recall import Recall
from keras_dml.search.rows import Columns
from keras_dml.search.searches import Searches
from keras_dml.search.sources import Source
from keras_dml.search.uris import table_at


class Index(Changes, Searches):
    """The embeddings of a gallery, to be searched and changed.

    Every image has a row with columns, such as its path and label, and an
    id that no other row is ever given. Rows can also have keys of the
    user's, such as article numbers: wherever an argument is called `keys`,
    it takes these, or ids if there are none. Searches are exact and depend
    on neither threads nor batches, unless `factory` says otherwise.

    Args:
        embeddings: (N, D); N may be 0. Or `EmbeddingShards`, which are read
            a shard at a time and bring columns, and keys: their ids.
        columns: Values of the rows by column, N each: text, finite numbers,
            booleans, None or lists of these.
        keys: Own keys, N text or N integers, each once; or the name of the
            column that holds them.
        metric: What scores are. "cosine": the cosine similarity, of
            embeddings that are brought to unit length; "dot": the dot
            product; "euclidean": the negative distance, so that the nearest
            scores highest here, too.
        factory: Kind of index: "Flat" is exact; other factory strings of
            faiss, such as "IVF4096,PQ32" and "HNSW32", are faster or
            smaller and miss something, see `recall`.
        parameters: How thoroughly it searches, as faiss calls it:
            "nprobe=32" of IVF, "efSearch=64" of HNSW. By default the
            square root of the number of lists, and 64.
        model: The model that made the embeddings; without it, there is
            no searching by image.
        store: Where rows are kept: in memory by default, or in a database,
            by its address, such as "lancedb://FOLDER/TABLE". It must be new,
            or begun by the same call.

    Attributes:
        threshold: From which score on two images are of one class; None
            before it is calibrated.
        recall: What it missed when it was built; None for exact ones, and
            in databases.

    Raises:
        FileExistsError: If `store` holds something else.
        ImportError: If the extra of a database is not installed.
        OSError: If a database cannot be reached.
        ValueError: If embeddings are not finite or zero, if lengths
            differ, or if faiss cannot make such an index.
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
        model: keras.Model | None = None,
        store: str | None = None,
    ) -> None:
        encoder = Encoder(model)
        self._over(
            *building.built(
                (embeddings, columns, keys),
                Metric(metric),
                factory,
                parameters,
                encoder,
                store,
            ),
            encoder,
        )

    def _over(
        self,
        gallery: Gallery,
        missed: Recall | None,
        encoder: Encoder,
        threshold: Threshold | None = None,
    ) -> None:
        super().__init__(gallery, encoder)
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
        batch_size: int = 256,
        store: str | None = None,
    ) -> "Index":
        """Embeds a gallery and makes its index.

        Rows get the columns "path" of files, and "label", "name", "source"
        and "box" of a set with labels, names of classes, ids and boxes.

        Args:
            model: From inputs, pixels of images in 0 to 255, to embeddings.
            images: An `ImageSet`, `ArraySet` or other `Examples`, with labels
                or without; or images as queries of `search`, which have no
                label.
            columns: Further columns, or those to replace.
            keys, metric, factory, parameters, store: As for `Index`; for
                instance `keys="source"`.
            batch_size: Images embedded at a time.

        Raises:
            ValueError: As for `Index`, or if `images` are no images.
        """
        encoder = Encoder(model)
        x = encoder.embed(images, "images", "Index.build", batch_size)
        if x is None:
            raise ValueError(
                "`images` of Index.build must be an ImageSet, files or uint8 "
                f"pixels. Received: {type(images).__name__}. Embeddings make "
                "an index by Index(embeddings), and a tf.data.Dataset makes "
                "examples by keras_dml.data.from_dataset."
            )
        index = cls.__new__(cls)
        index._over(
            *building.built(
                (x, columns_of(images, columns), keys),
                Metric(metric),
                factory,
                parameters,
                encoder,
                store,
            ),
            encoder,
        )
        return index

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
        gallery, encoder = self._gallery, self._encoder
        if not isinstance(gallery, LocalGallery):
            raise ValueError(
                "Index.save writes an index that is in memory. Received: "
                f"{self!r}, which its database keeps. open_index(uri) "
                "opens it there."
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
            faiss=faiss_kinds.library().__version__,
            metric=self.metric,
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
        """The index in a database; see `open_index`."""
        gallery = building.opened(table_at(uri, "open_index"))
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
        from keras_dml.search._push import push

        return push(
            self,
            uri,
            factory=factory,
            parameters=parameters,
            overwrite=overwrite,
            batch_size=batch_size,
        )

    def _as_source(self) -> Source:
        """The rows, to be copied."""
        model = self._encoder.identity
        return Source.of_gallery(self._gallery, model, self.threshold)

    @property
    def model(self) -> keras.Model | None:
        """The model that made the embeddings, which is read now; or None.

        Raises:
            FileNotFoundError: If the index was saved again since.
            ValueError: If its file is damaged.
        """
        return self._encoder.model if self._encoder.exists else None

    def close(self) -> None:
        """Gives back what a database holds: connections, a server, files."""
        self._gallery.close()

    def __repr__(self) -> str:
        parts = [f"{len(self):,} × {self.dim}", self.factory, self.metric]
        if self._gallery.has_keys:
            parts.append("own keys")
        if names := self._gallery.names:
            parts.append(f"columns {', '.join(names)}")
        if self.threshold is not None:
            parts.append(f"threshold {self.threshold.value:.4f}")
        return f"Index({'; '.join(parts)})"
