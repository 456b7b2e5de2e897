"""Push and open: an index in a folder or a database, by address."""

import os

import keras

from keras_dml.embedding import EmbeddingShards
from keras_dml.search import building
from keras_dml.search.copying import BATCH, Pushed, copy
from keras_dml.search.engine import EXACT
from keras_dml.search.index import Index
from keras_dml.search.metrics import COSINE, Metric, MetricName
from keras_dml.search.sources import Source
from keras_dml.search.uris import is_database, table_at
from keras_dml.utils.arguments import check_count


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

    Rows keep their ids. Finally, the number of rows and 100 randomly drawn rows
    are compared with the source. If a push was interrupted, the same call
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
            "IVF1024,Flat", "IVF1024,SQ8", "IVF1024,PQ16" or "HNSW32".
        overwrite: Whether to replace an existing keras_dml index. Data that was
            not written by keras_dml is never touched.
        batch_size: Number of rows written at a time.

    Returns:
        A summary of what was written and compared.

    Raises:
        FileExistsError: If the address already holds something else.
        ImportError: If the extra for that database is not installed.
        OSError: If the database cannot be reached, or does not hold what was
            written.
        ValueError: If an argument is invalid, or the database cannot store
            these rows.
    """
    check_count("push", "batch_size", batch_size)
    table = table_at(uri, "push")
    if isinstance(source, EmbeddingShards):
        column = building.check_shards(source, None, keys)
        by = Metric(COSINE if metric is None else metric)
        rows = Source.of_shards(source, by, column)
    else:
        if (keys, metric) != (None, None):
            raise ValueError(
                "`keys` and `metric` of push must only be given for "
                "EmbeddingShards; an index has its own. Received: "
                f"keys={keys!r}, metric={metric!r}."
            )
        rows = source._as_source()
    gallery, pushed = copy(
        rows, table, factory, parameters, overwrite, batch_size
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
