"""Index: a gallery of embeddings, built, saved, changed and searched.

The file is long because the class is documented where it is written.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_dml.data.imageset import ImageSet
from keras_dml.data.validation import encode_labels
from keras_dml.embedding import EmbeddingShards
from keras_dml.embedding.engines import KERAS, Engine, check_engine
from keras_dml.evaluation.identification import (
    DEFAULT_CRITERION,
    AnyThreshold,
    IdentificationThreshold,
    parse_rate,
)
from keras_dml.evaluation.verification import calibrate
from keras_dml.search import store
from keras_dml.search.encoder import (
    THUMBNAIL,
    Encoder,
    as_image_set,
    image_columns,
    thumbnail_column,
)
from keras_dml.search.engine import (
    COSINE,
    EXACT,
    NO_ID,
    IndexSpec,
    MetricName,
    Similarity,
    innermost,
    make_index,
    set_parameters,
)
from keras_dml.search.engine import Engine as SearchEngine
from keras_dml.search.filters import Where
from keras_dml.search.hits import Hits, pad_hits, without_self
from keras_dml.search.identification import calibrate_search
from keras_dml.search.recall import Filling, Recall, take_rows
from keras_dml.search.rows import (
    KEY,
    LABEL,
    NAME,
    VECTOR,
    Columns,
    Key,
    RowTable,
    Values,
    as_columns,
    as_keys,
    checked_columns,
    column_of_keys,
    label_values,
)
from keras_dml.utils.arguments import check_count, explain_removed
from keras_dml.utils.progress import throughput, waiting
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import Embeddings, blocks

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

MAX_HITS = 2**20
"""Hits of a query that are allowed for a gallery of any size."""

_TRAIN_VECTORS = 256
"""Training vectors per list, or per value of a code, for faiss."""


class Index:
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
        queries: Embeddings, (Q, D), or images, such as those that will be
            searched for, to measure `recall` with; best of hundreds that are
            not in the gallery. By default, it is measured with a sample of the
            rows. An exact index has no need of them.

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
        queries: Any = None,
    ) -> None:
        encoder = Encoder()
        if model is not None:
            encoder.use(model)
        if labels is not None:
            numbers, names = encode_labels(labels, None, "Index")
            classes = {LABEL: label_values(numbers)}
            if names and numbers.ndim == 1:
                classes[NAME] = [names[i] for i in classes[LABEL]]
            columns = {**classes, **as_columns(columns)}
        spec = IndexSpec(Similarity(metric), factory, parameters)
        if isinstance(embeddings, EmbeddingShards):
            encoder.expect(embeddings.model)
            new = _new_queries(encoder, queries, embeddings.dim, spec, "Index")
            gallery = _fill_from_shards(embeddings, columns, keys, spec, new)
            self._use(encoder, *gallery)
        else:
            new = _new_queries(encoder, queries, None, spec, "Index")
            self._fill(encoder, embeddings, columns, keys, spec, new)

    def _fill(
        self,
        encoder: Encoder,
        embeddings: Any,
        columns: Columns | None,
        keys: Any,
        spec: IndexSpec,
        queries: FloatArray | None,
    ) -> None:
        """Builds the index of embeddings, (N, D), and measures its recall."""
        x = spec.metric.embeddings(embeddings, None, "embeddings", "Index")
        # Bad queries raise before time is spent on training.
        if queries is not None:
            dim = x.shape[1]
            queries = spec.metric.embeddings(
                queries, dim, "queries", "Index"
            ).array
        values, row_keys = _check_values(columns, keys, len(x))
        engine, rows = SearchEngine.train(x, spec), RowTable.empty()
        ids, recall = rows.add(values, len(x), row_keys), None
        if engine.is_exact:
            engine.add(x, ids)
        else:
            filling = Filling(engine, len(x), queries)

            def read() -> Iterator[FloatArray]:
                return (x.array[part] for part in blocks(len(x), 2**16))

            with waiting(f"Fill {spec.factory} with {len(x):,} vectors"):
                for part in read():
                    filling.add(part)
                recall = filling.finish(read)
        self._use(encoder, engine, rows, recall)

    def _use(
        self,
        encoder: Encoder,
        engine: SearchEngine,
        rows: RowTable,
        recall: Recall | None,
        threshold: AnyThreshold | None = None,
    ) -> None:
        self._encoder, self._engine, self._rows = encoder, engine, rows
        self._recall, self.threshold = recall, threshold
        # The folder that it was read from or saved in, and its version there.
        self._origin: tuple[Path | None, str | None] = None, None
        self._has_warned = False

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
        queries: Any = None,
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
            engine: Engine for the images: "keras", "openvino", an exported
                file or a function; see `embed`.
            queries: Images, in any of these forms, or embeddings, to measure
                `recall` with; see `Index`.

        Raises:
            ImportError: If the extra "openvino" is required but not installed.
            ValueError: As for `Index`, or if `images` are not images.
        """
        check_engine("Index.build", engine)
        encoder = Encoder()
        encoder.use(model)
        spec = IndexSpec(Similarity(metric), factory, parameters)
        # A bad factory raises before time is spent on embedding.
        if (dim := encoder.dim) is not None:
            set_parameters(make_index(dim, spec), spec)
        values: Columns = {**image_columns(images), **as_columns(columns)}
        if (image_set := as_image_set(images)) is not None:
            _check_values(values, keys, len(image_set))
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
        options = batch_size, engine
        new = _new_queries(encoder, queries, dim, spec, "Index.build", *options)
        x = encoder.embed(images, "images", "Index.build", batch_size, engine)
        if x is None:
            raise ValueError(
                "`images` of Index.build must be a set such as ImageSet or "
                "ArraySet, files, texts or uint8 pixels. Received: "
                f"{type(images).__name__}. Use Index(embeddings) for "
                "embeddings, and keras_dml.data.from_dataset for a "
                "tf.data.Dataset or a PyDataset."
            )
        if isinstance(images, ImageSet) and images.bad_files is not None:
            bad = images.bad_files.rows_of(images)
            good = np.delete(np.arange(len(x)), bad).tolist()
            x = x[good]
            values = {k: [v[row] for row in good] for k, v in values.items()}
            if keys is not None and not isinstance(keys, str):
                keys = [keys[row] for row in good]
        index = cls.__new__(cls)
        index._fill(encoder, x, values, keys, spec, new)
        return index

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: keras.Model | None = None,
        verify: bool = True,
        *,
        trust: bool = False,
    ) -> "Index":
        """Reads an index from its folder.

        Args:
            path: The folder.
            model: The model that computed the embeddings; by default, the one
                in the folder, which is loaded when it is needed.
            verify: Whether to verify the checksums of the files.
            trust: Whether code that comes with the model may be used: modules
                that it names are imported, and Keras's `safe_mode` is off.
                Otherwise only what the program has imported is used.

        Raises:
            FileNotFoundError: If there is no index in the folder.
            ValueError: If it is damaged or of an unknown version, or if `model`
                is not the one that computed the embeddings.
        """
        folder = store.folder_at(path)
        version, content, engine, rows, file = store.load(folder, verify)
        encoder = Encoder(content.model, file, trust)
        index = cls.__new__(cls)
        index._use(encoder, engine, rows, content.recall, content.threshold)
        index._origin = (folder, version)
        if model is not None:
            encoder.use(model)
        return index

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        include_model: bool = True,
    ) -> None:
        """Writes the index to a folder, atomically.

        The folder then has the manifest, `index.json`, and the folder `data`
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
        import faiss

        folder, encoder = store.folder_at(path), self._encoder
        engine, rows = self._engine, self._rows
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
            faiss=faiss.__version__,
            metric=self.metric,
        )
        writers = {store.ROWS: rows.write, store.VECTORS: engine.write}
        if include_model and encoder.exists:
            writers[store.MODEL] = encoder.unchanged_model("Index.save").save
        origin, origin_version = self._origin
        version = origin_version if origin == folder else None
        version = store.save(folder, content, writers, version, overwrite)
        self._origin = (folder, version)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Key) -> dict[str, Any]:
        """The columns of the row with a key; KeyError if there is none."""
        (row_id,) = self._rows.find([key], "Index")
        if row_id is None:
            raise KeyError(f"There is no row {key!r} in the index.")
        return self.row(row_id)

    def __contains__(self, key: object) -> bool:
        """Whether there is a row with a key."""
        return key in self._rows

    def __iter__(self) -> Iterator[Key]:
        """The keys, in the order of the rows."""
        return iter(self.keys)

    @property
    def metric(self) -> MetricName:
        """The metric of the scores: "cosine", "dot" or "euclidean"."""
        return self._engine.metric.name

    @property
    def dim(self) -> int:
        """Dimensions of the embeddings, D."""
        return self._engine.dim

    @property
    def factory(self) -> str:
        """The kind of index, as a factory string."""
        return self._engine.factory

    @property
    def parameters(self) -> str:
        """Search parameters, in the notation of the search engine."""
        return self._engine.parameters

    @property
    def recall(self) -> Recall | None:
        """How much the index missed when it was built; None if it is exact.

        It holds for queries like those that `Recall.source` names.
        """
        return self._recall

    @property
    def types(self) -> dict[str, set[type]]:
        """Types of the values by column, not counting None."""
        return self._rows.types

    @property
    def ids(self) -> Rows:
        """Ids of the rows, ascending, (N,)."""
        return self._rows.ids.copy()

    @property
    def keys(self) -> list[Key]:
        """Keys of the rows, or ids if rows have no keys, in the same order."""
        rows = self._rows
        return list(rows.keys_of(rows.ids))

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Values of the rows by column, in the order of the ids."""
        columns = self._rows.columns
        return {name: list(values) for name, values in columns.items()}

    @property
    def embeddings(self) -> FloatArray:
        """The embeddings used for comparison, (N, D), in the order of the ids.

        With the metric "cosine" they have unit length.
        """
        return self._engine.vectors.copy()

    @property
    def labels(self) -> list[Any]:
        """The class of each image: its "name", or else its "label".

        Raises:
            ValueError: If neither column has a value for every row.
        """
        columns = self._rows.columns
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
        return self._rows.row(row_id)

    def check_model(self, model: keras.Model, owner: str) -> None:
        """Checks that a model computed the embeddings, as far as is known.

        Args:
            model: The model.
            owner: The function that needs it, in messages.

        Raises:
            ValueError: If it is another model, or its weights have changed.
        """
        self._encoder.check(model, owner)

    @property
    def model(self) -> keras.Model | None:
        """The model that computed the embeddings, loaded on access; or None.

        Raises:
            FileNotFoundError: If the index has been saved again in the
                meantime.
            ValueError: If the file of the model is damaged.
        """
        return self._encoder.model if self._encoder.exists else None

    def table(self) -> "pyarrow.Table":
        """Returns the rows as an Arrow table, for databases and data frames.

        Its columns are "key", which holds ids where rows have no keys,
        "vector", lists of D numbers, and those of the index. One of those that
        is called "key" or "vector" becomes "row.key" or "row.vector".

        Raises:
            ValueError: If the values of a column have several types, or the
                kind of index does not keep vectors that can be read.
        """
        import pyarrow as arrow

        numbers = arrow.array(self.embeddings.reshape(-1), arrow.float32())
        vectors = arrow.FixedSizeListArray.from_arrays(numbers, self.dim)
        arrays: dict[str, Any] = {KEY: arrow.array(self.keys), VECTOR: vectors}
        for name, values in self._rows.columns.items():
            title = f"row.{name}" if name in (KEY, VECTOR) else name
            try:
                arrays[title] = arrow.array(values)
            except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
                raise ValueError(
                    "Index.table requires columns whose values have one type. "
                    f"Received: the column {name!r} of {len(self)} rows. Arrow "
                    f"says: {error}"
                ) from None
        return arrow.table(arrays)

    def __repr__(self) -> str:
        parts = [f"{len(self):,} × {self.dim}", self.factory, self.metric]
        if self._rows.keys is not None:
            parts.append("own keys")
        if names := list(self._rows.columns):
            parts.append(f"columns {', '.join(names)}")
        if self.threshold is not None:
            parts.append(f"threshold {self.threshold.value:.4f}")
        return f"Index({'; '.join(parts)})"

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
        rows, columns = self._rows, as_columns(columns)
        values: Columns = {**image_columns(items), **columns}
        if THUMBNAIL in rows.columns:
            sets = self._encoder.sets(items, "items", owner) or []
            values = {**thumbnail_column(sets), **values}
        is_own = bool({LABEL, NAME} & set(columns))
        new = rows.with_labels(checked_columns(values, len(x)), is_own, owner)
        if replace and keys is None:
            raise ValueError(
                f"`replace` of {owner} requires `keys`. Received: "
                "replace=True, keys=None."
            )
        row_keys = rows.new_keys(keys, len(x), owner)
        existing = rows.keys or {}
        replaced = [key for key in row_keys or [] if key in existing]
        if replaced and not replace:
            raise ValueError(
                f"`keys` of {owner} must be new. Received: {replaced[0]!r}, "
                "which already exists. Use replace=True to replace rows."
            )
        replaced_ids = sorted(existing[key] for key in replaced)
        # Vectors come first, because invalid embeddings raise here.
        self._engine.add(x, rows.next_id + np.arange(len(x)))
        self._remove(np.array(replaced_ids, np.int64))
        return rows.add(new, len(x), row_keys)

    def remove(self, keys: Any = None, *, where: Where | None = None) -> int:
        """Removes rows; their ids are never reused.

        Graphs and lists hide the vectors at first, which stay in memory and in
        the file. With more than half hidden, kinds that keep whole vectors are
        rebuilt, and lists of codes drop theirs.

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
            found_ids = self._rows.find(keys, "Index.remove")
            if None in found_ids:
                key = as_keys(keys, "Index.remove")[found_ids.index(None)]
                raise KeyError(
                    "`keys` of Index.remove must be keys of existing rows. "
                    f"Received: {key!r}, which does not exist."
                )
            ids = np.unique(np.array(found_ids, np.int64))
        else:
            ids = self._rows.where(where)
        self._remove(ids)
        return len(ids)

    def _remove(self, ids: Rows) -> None:
        if len(ids):
            self._engine.remove(ids)
            self._rows.remove(ids)

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        where: Where | Sequence[Mapping[str, Any] | None] | None = None,
        exclude: Any = None,
        threshold: float | None = None,
        batch_size: int = 256,
    ) -> Hits:
        """Finds the k most similar images for each query.

        Args:
            queries: Embeddings, (Q, D) or (D,); examples, such as an `ImageSet`
                or `ArraySet`; or one image or a list of images: paths, encoded
                files as bytes, PIL images, or pixels, (H, W), (H, W, C) or (Q,
                H, W, C), as uint8 or as numbers from 0 to 255, which are
                rounded.
            k: Number of images to find, at most 2²⁰ or the size of the gallery.
                Fewer are returned if the gallery is smaller.
            where: The rows to search among, as conditions by column. A value
                that a column must have: `{"name": "crow"}`; one of several
                values: `{"label": [3, 4]}`; or comparisons by ==, !=, "in",
                "not in", <, <=, > and >=: `{"price": {">=": 10, "<": 20}}`; or,
                in lists, "contains": `{"tags": {"contains": "red"}}`, which
                also takes several values, of which one must be there. Dates
                compare with dates. Rows must fulfill the conditions on all
                columns. None equals None and nothing else, and never fulfills
                <, <=, > or >=. Instead of conditions, a mask, (N,) booleans in
                the order of `ids`, or a function that maps columns, as arrays,
                to a mask. A list of Q conditions has one for each query, None
                for no condition.
            exclude: For each query, the key of a row that it must not find,
                usually its own, (Q,). Keys that do not exist exclude nothing.
            threshold: The score from which a hit counts as a match; by default,
                the calibrated one, if any.
            batch_size: Number of images embedded at a time.

        Raises:
            ValueError: If queries are zero, not finite or of the wrong
                dimension, if they are images but there is no model, or if
                another argument is invalid.
        """
        owner = "Index.search"
        k = check_count(owner, "k", k)
        if k > MAX_HITS and k > len(self):
            raise ValueError(
                f"`k` of {owner} must be at most {MAX_HITS:,}, or the size of "
                f"the gallery, {len(self):,}, where that is larger. Received: "
                f"k={k}. Use k=len(index) for all rows."
            )
        threshold = self._threshold(threshold, owner)
        x = self._embeddings(queries, "queries", owner, batch_size)
        k += exclude is not None
        scores = np.empty((len(x), k), np.float32)
        ids = np.empty((len(x), k), np.int64)
        for rows, among in self._rows.split(where, len(x), owner):
            scores[rows], ids[rows] = self._engine.search(
                x.array[rows], k, among
            )
        if exclude is not None:
            self_ids = self._self_ids(exclude, len(ids), owner)
            scores, ids = without_self(self_ids, scores, ids)
        return self._hits(scores, ids, threshold)

    def range_search(
        self,
        queries: Any,
        threshold: float | None = None,
        *,
        where: Where | Sequence[Mapping[str, Any] | None] | None = None,
        exclude: Any = None,
        batch_size: int = 256,
    ) -> Hits:
        """Finds all images that reach a threshold, for each query.

        Every vector is compared, whatever the kind of index, so none is missed.
        Scores are computed from the vectors as they are stored. Each query
        takes up as much memory as the one with the most hits.

        Args:
            queries: As for `search`.
            threshold: The lowest score to return; by default, the calibrated
                one.
            where, exclude, batch_size: As for `search`.

        Raises:
            ValueError: As for `search`, or if there is no threshold, or if this
                kind of index does not support range search.
        """
        owner = "Index.range_search"
        threshold = self._threshold(threshold, owner)
        if threshold is None:
            raise ValueError(
                f"`threshold` of {owner} must be a score. Received: None, for "
                "an index that is not calibrated. Use a score, or "
                "Index.calibrate."
            )
        x = self._embeddings(queries, "queries", owner, batch_size).array
        parts = []
        for rows, among in self._rows.split(where, len(x), owner):
            which, scores, ids = self._engine.range_search(
                x[rows], threshold, among
            )
            parts.append((np.arange(len(x))[rows][which], scores, ids))
        which, scores, ids = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(which, kind="stable")
        if exclude is not None:
            self_ids = self._self_ids(exclude, len(x), owner)
            order = order[(ids != self_ids[which])[order]]
        hits = pad_hits(len(x), which[order], scores[order], ids[order])
        return self._hits(*hits, threshold)

    def calibrate(
        self,
        images: Any,
        labels: Any = None,
        criterion: str = DEFAULT_CRITERION,
        *,
        batch_size: int = 256,
        **options: Any,
    ) -> AnyThreshold:
        """Calibrates the score from which a hit counts as a match.

        By default the rate that is asked for is one of searches (1:N): the
        share of queries whose class is not in the gallery that get a match, the
        false positive identification rate. Each image is searched in this
        gallery, so that the rate is one at its size, without rows of its own
        class ("name" or else "label") and without exact copies. A gallery
        without these columns must not hold classes of `images`. All classes
        count alike. The rate is then measured on classes that the threshold
        was not chosen on, with an interval by a bootstrap over classes; so is
        the share of the gallery's own images, at most 1,000, whose nearest
        other row is a match of the same class.

        The score is in the metric of the index; for "euclidean" it is a
        negative distance.

        Args:
            images: Images of classes that the model was not trained on, at
                least 5 for "fpir", and best 20 and more: an `ImageSet`, or
                embeddings, (N, D). They need not be in the gallery.
            labels: Their classes, (N,); by default, the labels of the set.
            criterion: "fpir=0.01" for that share of queries; or, for comparing
                pairs of images (1:1), "eer", "f1" or "fpr=0.01": see
                `keras_dml.search.calibrate`.
            batch_size: Number of images embedded at a time.
            **options: `confidence`, `num_resamples`, `seed` and `progress`, as
                for `keras_dml.search.calibrate`.

        Returns:
            The threshold. The index keeps it and saves it, too.

        Raises:
            ValueError: If there are too few classes, the gallery is empty, or
                an argument is not as described.

        Reference:
            ISO/IEC 19795-1:2021, "Biometric performance testing and
            reporting", false-positive identification-error rate.
        """
        owner = "Index.calibrate"
        rate = parse_rate(criterion)
        names = {} if labels is not None else getattr(images, "names", {})
        if labels is None:
            labels = getattr(images, "labels", None)
        if labels is None:
            raise ValueError(
                f"`labels` of {owner} must be given unless `images` is a set "
                f"with labels. Received: images of {type(images).__name__}, "
                "labels=None."
            )
        x = self._embeddings(images, "images", owner, batch_size).array
        self.threshold = (
            calibrate(x, labels, criterion, distance=self.metric, **options)
            if rate is None
            else calibrate_search(
                self._engine,
                self._rows,
                x,
                labels,
                names,
                criterion,
                rate,
                **options,
            )
        )
        self._has_warned = False
        return self.threshold

    def _embeddings(
        self, items: Any, name: str, owner: str, batch_size: int
    ) -> Embeddings:
        """Embeds images, or validates the user's own embeddings, (N, D)."""
        x = self._encoder.embed(items, name, owner, batch_size)
        return self._engine.metric.embeddings(
            items if x is None else x, self.dim, name, owner
        )

    def _self_ids(self, exclude: Any, count: int, owner: str) -> Rows:
        """The id of each query's own row; an unused id if it is missing."""
        ids = self._rows.find(exclude, owner, "exclude")
        if len(ids) != count:
            raise ValueError(
                f"`exclude` of {owner} must be one key, or one key per query. "
                f"Received: {len(ids)} keys for {count} queries."
            )
        return np.array([NO_ID - 1 if x is None else x for x in ids], np.int64)

    def _threshold(self, score: Any, owner: str) -> float | None:
        """Validates the user's score; by default, that of `calibrate`."""
        if score is None:
            self._check_size()
            return None if self.threshold is None else self.threshold.value
        is_number = isinstance(score, int | float | np.integer | np.floating)
        if not is_number or isinstance(score, bool) or score != score:
            raise ValueError(
                f"`threshold` of {owner} must be a score, a number. Received: "
                f"threshold={score!r}."
            )
        return float(score)

    def _check_size(self) -> None:
        """Warns once if the gallery's size has changed since calibration."""
        threshold = self.threshold
        if self._has_warned or not isinstance(
            threshold, IdentificationThreshold
        ):
            return
        rows, rows_before = len(self), threshold.gallery_rows
        if 2 * abs(rows - rows_before) > rows_before:
            self._has_warned = True
            logger.warning(
                "The threshold of this Index was calibrated with %s rows, and "
                "it has %s now: %s of the queries without a class in it get a "
                "match. Use Index.calibrate again.",
                f"{rows_before:,}",
                f"{rows:,}",
                "more" if rows > rows_before else "fewer",
            )

    def _hits(
        self, scores: FloatArray, ids: Rows, threshold: float | None
    ) -> Hits:
        calibrated, meaning = self.threshold, ""
        if calibrated is not None and calibrated.value == threshold:
            meaning = calibrated.meaning
        return Hits(scores, ids, self._rows, threshold, self.metric, meaning)


def _check_values(
    columns: Columns | None, keys: Any, count: int
) -> tuple[Values, list[Key] | None]:
    """Validates the columns and keys of `count` rows."""
    values = checked_columns(columns, count)
    if isinstance(keys, str):
        keys = column_of_keys(keys, values)
    return values, RowTable.empty().new_keys(keys, count, "Index")


def _new_queries(
    encoder: Encoder,
    queries: Any,
    dim: int | None,
    spec: IndexSpec,
    owner: str,
    batch_size: int = 256,
    engine: Engine = KERAS,
) -> FloatArray | None:
    """Embeds a user's queries, (Q, D), for recall; None without any."""
    if queries is None:
        return None
    x = encoder.embed(queries, "queries", owner, batch_size, engine)
    x = queries if x is None else x
    new = spec.metric.embeddings(x, dim, "queries", owner).array
    if not len(new):
        raise ValueError(
            f"`queries` of {owner} must have at least one row. Received: none. "
            "Leave them out to measure recall with rows of the gallery."
        )
    return new


def _fill_from_shards(
    shards: EmbeddingShards,
    columns: Any,
    keys: Any,
    spec: IndexSpec,
    queries: FloatArray | None,
) -> tuple[SearchEngine, RowTable, Recall | None]:
    """Trains an engine on a sample of shards, and fills it; see `Index`."""
    _check_shards(shards, columns, keys)
    metric = spec.metric
    sample = _training_sample(shards, spec)
    x = metric.embeddings(sample, shards.dim, "embeddings", "Index")
    engine, rows = SearchEngine.train(x, spec), RowTable.empty()
    engine.reserve(len(shards))
    filling = Filling(engine, len(shards), queries)
    adding = f"Add rows to {spec.factory}"
    with throughput(len(shards), 0, "rows", adding, None) as count:
        for shard in shards:
            x = metric.embeddings(
                shard.embeddings, None, "embeddings", "a shard"
            )
            values = checked_columns(
                {**_label_column(shard.labels), **shard.columns}, len(x)
            )
            row_keys: Any = shard.ids if keys in (None, "id") else values[keys]
            ids = rows.add(values, len(x), row_keys)
            if engine.is_exact:
                engine.add(x, ids)
            else:
                filling.add(x.array)
            count(len(x))

    def read() -> Iterator[FloatArray]:
        for part in shards.embeddings():
            yield metric.embeddings(part, None, "embeddings", "Index").array

    return engine, rows, None if engine.is_exact else filling.finish(read)


def _check_shards(shards: EmbeddingShards, columns: Any, keys: Any) -> None:
    """Raises ValueError unless columns and keys fit shards."""
    if columns is not None:
        raise ValueError(
            "`columns` of Index must not be given for EmbeddingShards, which "
            f"have their own. Received: {columns!r}. Use Index(shards.array(), "
            "columns) for others."
        )
    if not isinstance(keys, str | None):
        raise ValueError(
            "`keys` of Index must be the name of a column for EmbeddingShards, "
            f"by default the ids. Received: a {type(keys).__name__}."
        )
    if keys not in (None, "id"):
        values = {**_label_column(shards.labels), **shards.columns}
        column = column_of_keys(keys, values)
        RowTable.empty().new_keys(column, len(shards), "Index")


def _label_column(labels: Any) -> Values:
    return {} if labels is None else {LABEL: label_values(labels)}


def _training_sample(shards: EmbeddingShards, spec: IndexSpec) -> FloatArray:
    """Embeddings to train an index with, (n, D) float32."""
    index = make_index(shards.dim, spec)
    if index.is_trained:
        return np.empty((0, shards.dim), np.float32)
    lists = getattr(innermost(index), "nlist", 0)
    size = _TRAIN_VECTORS * max(_TRAIN_VECTORS, lists)
    rows = np.random.default_rng(0).permutation(len(shards))[:size]
    return take_rows(shards.embeddings(), np.sort(rows), shards.dim)
