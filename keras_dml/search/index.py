"""Index: the embeddings of a gallery, to be searched.

One class in one long file, which is mostly the reference of its methods.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_dml.data.imageset import as_image_set, image_columns
from keras_dml.evaluation.verification import Threshold, calibrate
from keras_dml.search import faiss_kinds, recall, store
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import EXACT, Engine
from keras_dml.search.filters import Where
from keras_dml.search.hits import NONE, Hits, padded, without
from keras_dml.search.keys import Key
from keras_dml.search.metrics import COSINE, Metric, MetricName
from keras_dml.search.rows import Columns, RowTable, as_columns
from keras_dml.utils.arguments import check_count
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows


class Index:
    """The embeddings of a gallery, to be searched and changed.

    Every image has a row with columns, such as its path and label, and an
    id that no other row is ever given. Rows can also have keys of the
    user's, such as article numbers: wherever an argument is called `keys`,
    it takes these, or ids if there are none. Searches are exact and depend
    on neither threads nor batches, unless `factory` says otherwise.

    Args:
        embeddings: (N, D). N may be 0.
        columns: Values of the rows by column, N each: text, numbers,
            booleans or None.
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
        keys: Any = None,
        metric: MetricName = COSINE,
        factory: str = EXACT,
        parameters: str | None = None,
        model: keras.Model | None = None,
    ) -> None:
        by = Metric(metric)
        x = by.given(embeddings, None, "embeddings", "Index")
        self.threshold: Threshold | None = None
        self._rows = RowTable()
        # Before time is spent on training.
        values = self._rows.check({} if columns is None else columns, len(x))
        own = self._rows.check_keys(_key_column(keys, values), len(x), "Index")
        self._encoder = Encoder(model)
        self._engine = Engine.trained(x, by, factory, parameters)
        ids = self._insert(x, values, own)
        self.recall: recall.Recall | None = None
        if not self._engine.is_exact:
            self.recall = recall.measure(self._engine, x.array, ids)
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
            keys, metric, factory, parameters: As for `Index`; for instance
                `keys="source"`.
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
                "an index by Index(embeddings)."
            )
        index = cls(
            x,
            _columns_of(images, columns),
            keys=keys,
            metric=metric,
            factory=factory,
            parameters=parameters,
        )
        index._encoder = encoder
        return index

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
        own = self._rows.check_keys(keys, len(x), "Index.add")
        self._check_new(own, "Index.add")
        return self._insert(x, values, own)

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
        own = self._rows.check_keys([] if keys is None else keys, len(x), owner)
        old = self._rows.ids_known(own or [])
        if len(old):
            self._engine.check_removes()
        # What is not embeddings is refused before anything is changed.
        self._add_vectors(x)
        self._rows.remove(old)
        ids = self._rows.add(values, len(x), own)
        if len(old):
            self._engine.remove(old)
        return ids

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
        ids = self._rows.ids_of(keys, "Index.update")
        if len(np.unique(ids)) < len(ids):
            raise ValueError(
                "`keys` of Index.update must each occur once. Received: "
                f"{len(ids)} keys of {len(np.unique(ids))} rows."
            )
        self._rows.update(ids, self._rows.check(columns, len(ids)))

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
            ids = np.unique(self._rows.ids_of(keys, "Index.remove"))
        else:
            ids = self._rows.where(where)
        if len(ids):
            self._engine.remove(ids)
            self._rows.remove(ids)
        return len(ids)

    def merge(self, other: "Index") -> Rows:
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
        fits = isinstance(other, Index) and other._engine.is_exact
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
        keys = other.keys if other._rows.keys is not None else None
        own = self._rows.check_keys(keys, len(x), "Index.merge")
        self._check_new(own, "Index.merge")
        return self._insert(x, other.columns, own)

    def _embeddings(
        self, items: Any, name: str, owner: str, batch_size: int
    ) -> Embeddings:
        """Of images or of embeddings, the argument `name` of `owner`."""
        found = self._encoder.embed(items, name, owner, batch_size)
        x = items if found is None else found
        return self._engine.metric.given(x, self.dim, name, owner)

    def _given(
        self,
        items: Any,
        columns: Columns | None,
        owner: str,
        batch_size: int,
    ) -> tuple[Embeddings, dict[str, list[Any]]]:
        """Embeddings and columns of rows to be written."""
        x = self._embeddings(items, "items", owner, batch_size)
        return x, self._rows.check(_columns_of(items, columns), len(x))

    def _check_new(self, keys: list[Key] | None, owner: str) -> None:
        """ValueError if there is a row with one of the keys."""
        if len(old := self._rows.ids_known(keys or [])):
            (key,) = self._rows.keys_of(old[:1])
            raise ValueError(
                f"`keys` of {owner} must be new. Received: {key!r}, which is "
                "there already. Use Index.upsert to replace rows."
            )

    def _insert(
        self,
        x: Embeddings,
        values: dict[str, list[Any]],
        keys: list[Key] | None,
    ) -> Rows:
        self._add_vectors(x)
        return self._rows.add(values, len(x), keys)

    def _add_vectors(self, x: Embeddings) -> None:
        """Adds vectors by the next ids; it may refuse, and adds none then."""
        next_id = self._rows.next_id
        self._engine.add(x, np.arange(next_id, next_id + len(x)))

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        where: Where | None = None,
        exclude: Any = None,
        threshold: float | None = None,
        batch_size: int = 256,
    ) -> Hits:
        """The k most similar images of each query.

        Args:
            queries: Embeddings, (Q, D) or (D,); examples, as an `ImageSet`
                or `ArraySet`; or images: paths, files as bytes, PIL images,
                uint8 pixels, (H, W), (H, W, C) or (Q, H, W, C), or such
                pixels as numbers in 0 to 255, which are rounded; one or a
                list of them.
            k: How many; there are fewer where the gallery has fewer.
            where: Which rows to search. Values that columns must have:
                `{"name": "crow"}`, or `{"label": [3, 4]}` for any of
                several; comparisons: `{"price": {">=": 10, "<": 20}}`, by
                ==, !=, <, <=, > and >=; or a function from columns, as
                arrays, to a mask, (N,) booleans in the order of `ids`; or
                the mask. Several columns must all fit. None is equal to
                None and unequal to all else, and in no order with anything.
            exclude: Key of a row that each query must not find, (Q,): its
                own. One that is not there excludes nothing.
            threshold: The score from which a hit is a match; by default
                that of `calibrate`, if there is one.
            batch_size: Images embedded at a time.

        Raises:
            ValueError: If queries are not finite, zero or of another
                dimension, if there is no model for images, or if another
                argument is not as described.
        """
        k = check_count("Index.search", "k", k)
        threshold = self._threshold(threshold, "Index.search")
        x = self._embeddings(queries, "queries", "Index.search", batch_size)
        has_own = exclude is not None
        scores, ids = self._engine.search(
            x.array, k + has_own, self._among(where), len(self)
        )
        if has_own:
            own = self._own(exclude, len(ids), "Index.search")
            scores, ids = without(own, scores, ids)
        return self._hits(scores, ids, threshold)

    def range_search(
        self,
        queries: Any,
        threshold: float | None = None,
        *,
        where: Where | None = None,
        exclude: Any = None,
        batch_size: int = 256,
    ) -> Hits:
        """All images that reach a threshold, for each query.

        Every vector is compared, whatever the kind of index: none is missed,
        and scores are those of the vectors as they are kept. Hits take memory
        for as many as the query with most of them has.

        Args:
            queries: As for `search`.
            threshold: The least score; by default that of `calibrate`.
            where, exclude, batch_size: As for `search`.

        Raises:
            ValueError: As for `search`, if there is no threshold, or if
                this kind of index cannot be searched so.
        """
        owner = "Index.range_search"
        threshold = self._threshold(threshold, owner)
        if threshold is None:
            raise ValueError(
                f"`threshold` of {owner} must be a score. Received: None, for "
                "an index that is not calibrated. Give one, or calibrate the "
                "index."
            )
        x = self._embeddings(queries, "queries", owner, batch_size).array
        found = self._engine.above(x, threshold, self._among(where))
        which, scores, ids = found
        if exclude is not None:
            kept = ids != self._own(exclude, len(x), owner)[which]
            which, scores, ids = which[kept], scores[kept], ids[kept]
        return self._hits(*padded(len(x), which, scores, ids), threshold)

    def _among(self, where: Where | None) -> Rows | None:
        """Ids of the rows to search; None for all vectors."""
        if where is not None:
            return self._rows.where(where)
        is_whole = len(self._engine) == len(self._rows)
        return None if is_whole else self._rows.ids

    def _own(self, exclude: Any, count: int, owner: str) -> Rows:
        """The id of each query's own row; of none where it is not there."""
        found = self._rows.find(exclude, owner, "exclude")
        if len(found) != count:
            raise ValueError(
                f"`exclude` of {owner} must be one id for each query, or one "
                f"key. Received: {len(found)} for {count} queries."
            )
        return np.array([NONE - 1 if x is None else x for x in found], np.int64)

    def _threshold(self, given: Any, owner: str) -> float | None:
        """The score that is given, or that of `calibrate`."""
        if given is None:
            return None if self.threshold is None else self.threshold.value
        is_number = isinstance(given, int | float | np.integer | np.floating)
        if not is_number or isinstance(given, bool) or given != given:
            raise ValueError(
                f"`threshold` of {owner} must be a score, a number. Received: "
                f"threshold={given!r}."
            )
        return float(given)

    def _hits(
        self, scores: FloatArray, ids: Rows, threshold: float | None
    ) -> Hits:
        return Hits(scores, ids, self._rows, threshold, self.metric)

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

        It is a score by the metric of the index: of "euclidean", the negative
        of a distance.

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
        owner = "Index.calibrate"
        if labels is None:
            labels = getattr(images, "labels", None)
        if labels is None:
            raise ValueError(
                f"`labels` of {owner} must be given, or `images` be a set "
                f"that has them. Received: images of {type(images).__name__}, "
                "labels=None."
            )
        x = self._embeddings(images, "images", owner, batch_size).array
        self.threshold = calibrate(
            x, labels, criterion, distance=self.metric, **options
        )
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
        parts = [f"{len(self):,} × {self.dim}", self.factory, self.metric]
        if self._rows.keys is not None:
            parts.append("own keys")
        if self._rows.columns:
            parts.append(f"columns {', '.join(self._rows.columns)}")
        if self.threshold is not None:
            parts.append(f"threshold {self.threshold.value:.4f}")
        return f"Index({'; '.join(parts)})"

    def __getitem__(self, key: Key) -> dict[str, Any]:
        """The columns of the row with a key; KeyError if there is none."""
        (row_id,) = self._rows.find([key], "Index")
        if row_id is None:
            raise KeyError(f"There is no row {key!r} in the index.")
        return self._rows.row(row_id)

    def __contains__(self, key: object) -> bool:
        """Whether there is a row with a key."""
        keys = self._rows.keys
        if keys is not None:
            return key in keys
        return isinstance(key, int | np.integer) and key in self._rows.ids

    def __iter__(self) -> Iterator[Key]:
        """The keys, in the order of the rows."""
        return iter(self.keys)

    @property
    def metric(self) -> MetricName:
        """What scores are: "cosine", "dot" or "euclidean"."""
        return self._engine.metric.name

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
    def keys(self) -> list[Key]:
        """Own keys of the rows, or their ids without, in the same order."""
        return list(self._rows.keys_of(self._rows.ids))

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Values of the rows by column, in the order of the ids."""
        columns = self._rows.columns
        return {name: list(values) for name, values in columns.items()}

    @property
    def embeddings(self) -> FloatArray:
        """The embeddings as they are compared, (N, D), in the order of the ids.

        For cosines they are of unit length.
        """
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


def _columns_of(items: Any, given: Columns | None) -> Columns:
    """Columns that are given, beside those that images bring along."""
    images = as_image_set(items)
    brought = {} if images is None else image_columns(items, images)
    return {**brought, **as_columns({} if given is None else given)}


def _key_column(keys: Any, columns: dict[str, list[Any]]) -> Any:
    """Keys, or those in the column of that name."""
    if not isinstance(keys, str):
        return keys
    if keys not in columns:
        raise ValueError(
            "`keys` of Index must be one for each row, or the name of a "
            f"column. Received: {keys!r}. There are: "
            f"{', '.join(columns) or 'none'}."
        )
    return columns[keys]
