"""LanceIndex: a gallery in LanceDB, for more vectors than memory holds."""

import math
import os
from typing import TYPE_CHECKING, Any, get_args

import keras
import numpy as np

from keras_dml.model.identity import ModelIdentity
from keras_dml.search.encoder import Encoder
from keras_dml.search.engine import COSINE, NO_ID, MetricName
from keras_dml.search.hits import Hit
from keras_dml.search.rows import KEY, VECTOR
from keras_dml.utils.arguments import check_choice, check_count, import_extra
from keras_dml.utils.files import Document
from keras_dml.utils.types import FloatArray

if TYPE_CHECKING:
    import lancedb
    import pyarrow

_METRIC, _MODEL = b"keras_dml.metric", b"keras_dml.model"
"""Keys of the metadata of the vectors' field."""

_IDENTITY = Document(ModelIdentity, "keras_dml.model")


class LanceIndex:
    """A gallery in a table of LanceDB, on a disk or in an object store.

    It is for galleries that exceed memory, or that several processes read and
    change. The table has the columns "key", "vector" and your own. What
    LanceDB does by itself, such as approximate indexes and versions, is done
    through `table`: `gallery.table.create_index("vector", config=...)`. Before
    that, searches are exact.

    Args:
        table: A table that `build` has made, as LanceDB's client returns it.
        model: The model that computed the embeddings. It is needed to search by
            image.

    Attributes:
        table: The table of LanceDB's own client.
        metric: The metric of the scores: "cosine", "dot", or "euclidean", whose
            scores are negative distances.

    Raises:
        ValueError: If `build` has not made the table, or `model` is not the one
            that computed its embeddings.

    Example:
        ```py
        index = dml.search.Index.build(model, images, keys="source")
        gallery = dml.search.LanceIndex.build(
            index.table(), "galleries", model=model
        )
        gallery.search("photo.jpg", k=5, where="price < 20")
        ```
    """

    def __init__(
        self, table: "lancedb.table.Table", model: keras.Model | None = None
    ) -> None:
        metadata: dict[bytes, bytes] = {}
        if {KEY, VECTOR} <= set(table.schema.names):
            metadata = table.schema.field(VECTOR).metadata or {}
        if _METRIC not in metadata:
            raise ValueError(
                "`table` of LanceIndex must be one that LanceIndex.build has "
                f"made. Received: {table.name!r} with the columns "
                f"{table.schema.names}."
            )
        self.table = table
        metric: Any = metadata[_METRIC].decode()
        self.metric: MetricName = metric
        identity = metadata.get(_MODEL)
        self._encoder = Encoder(
            None if identity is None else _IDENTITY.read(identity)
        )
        if model is not None:
            self._encoder.use(model)

    @classmethod
    def build(
        cls,
        rows: Any,
        uri: str | os.PathLike[str],
        name: str = "gallery",
        *,
        metric: MetricName = COSINE,
        model: keras.Model | None = None,
        overwrite: bool = False,
    ) -> "LanceIndex":
        """Writes rows to a new table.

        Args:
            rows: An Arrow table, such as `Index.table()`, or a reader of record
                batches, which need not fit in memory. They have a column "key"
                of unique strings or integers, and "vector", lists of D numbers
                in float32.
            uri: A folder of tables, or the address of one, such as
                "s3://bucket/folder".
            name: Name of the table.
            metric: The metric of the scores, as for `Index`.
            model: The model that computed the embeddings. Tables remember which
                one it is, and `open` accepts no other.
            overwrite: Whether to replace a table of this name.

        Raises:
            ImportError: If the extra "lancedb" is not installed.
            ValueError: If an argument is not as described, or there is a table
                of this name.
        """
        check_choice("LanceIndex.build", "metric", metric, get_args(MetricName))
        schema: Any = getattr(rows, "schema", None)
        if not {KEY, VECTOR} <= set(getattr(schema, "names", ())):
            raise ValueError(
                "`rows` of LanceIndex.build must be an Arrow table or a reader "
                f'of record batches with the columns "{KEY}" and "{VECTOR}". '
                f"Received: {type(rows).__name__}. Use Index.table()."
            )
        metadata = {_METRIC: metric.encode()}
        if model is not None:
            identity = ModelIdentity.of(model)
            metadata[_MODEL] = _IDENTITY.write(identity).encode()
        position = schema.get_field_index(VECTOR)
        field = schema.field(position).with_metadata(metadata)
        table = _connect(uri).create_table(
            name,
            schema=schema.set(position, field),
            mode="overwrite" if overwrite else "create",
        )
        table.add(rows)
        return cls(table, model)

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        name: str = "gallery",
        *,
        model: keras.Model | None = None,
    ) -> "LanceIndex":
        """Opens a table that `build` has made.

        Raises:
            ImportError: If the extra "lancedb" is not installed.
            ValueError: If there is no such table, or `model` is not the one
                that computed its embeddings.
        """
        return cls(_connect(uri).open_table(name), model)

    def __len__(self) -> int:
        return int(self.table.count_rows())

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        where: str | None = None,
        batch_size: int = 256,
    ) -> list[list[Hit]]:
        """Finds the k most similar rows for each query, nearest first.

        Args:
            queries: Embeddings, (Q, D) or (D,), or images in any form that
                `Index.search` takes.
            k: Number of rows to find.
            where: A condition in LanceDB's SQL, such as "price < 20 and name =
                'crow'", which is applied before the search.
            batch_size: Number of images embedded at a time.

        Returns:
            The hits of each query. Their `id` is −1: rows have keys alone.

        Raises:
            ValueError: If queries are of the wrong dimension or not finite, or
                if they are images but there is no model.
        """
        check_count("LanceIndex.search", "k", k)
        hits: list[list[Hit]] = []
        for vector in self._vectors(queries, batch_size):
            query = self.table.search(vector, vector_column_name=VECTOR)
            distance = "l2" if self.metric == "euclidean" else self.metric
            query = query.distance_type(distance).limit(k)
            if where is not None:
                query = query.where(where, prefilter=True)
            names = [x for x in self.table.schema.names if x != VECTOR]
            rows = query.select([*names, "_distance"]).to_list()
            hits.append([self._hit(row) for row in rows])
        return hits

    def add(self, rows: "pyarrow.Table") -> None:
        """Adds rows; a row whose key is there already replaces it.

        Args:
            rows: An Arrow table with the columns of this one.
        """
        merge = self.table.merge_insert(KEY).when_matched_update_all()
        merge.when_not_matched_insert_all().execute(rows)

    def remove(self, where: str) -> None:
        """Removes the rows that fulfill a condition in LanceDB's SQL."""
        self.table.delete(where)

    def _vectors(self, queries: Any, batch_size: int) -> FloatArray:
        """Queries as finite embeddings, (Q, D)."""
        images = "queries", "LanceIndex.search", batch_size
        x = None
        if self._encoder.exists:
            x = self._encoder.embed(queries, *images)
        if x is None:
            x = np.atleast_2d(np.asarray(queries, np.float32))
        dim = self.table.schema.field(VECTOR).type.list_size
        if x.ndim != 2 or x.shape[1] != dim or not np.isfinite(x).all():
            raise ValueError(
                "`queries` of LanceIndex.search must be images, with a "
                f"`model`, or finite embeddings, (Q, {dim}). Received: the "
                f"shape {x.shape}."
            )
        return x

    def _hit(self, row: dict[str, Any]) -> Hit:
        distance, key = row.pop("_distance"), row.pop(KEY)
        is_squared = self.metric == "euclidean"
        score = -math.sqrt(distance) if is_squared else 1 - distance
        return Hit(id=NO_ID, score=score, is_match=None, row=row, key=key)


def _connect(uri: str | os.PathLike[str]) -> Any:
    lancedb = import_extra("LanceIndex", "lancedb", "lancedb")
    return lancedb.connect(os.fspath(uri))
