"""Push and open: an index in a folder or a database, by its address."""

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
    """Copies an index, or embeddings in shards, into a database.

    Rows keep their ids. It ends by comparing the number of rows, and 100 of
    them that are drawn at random. Where it was interrupted, the same call
    continues; where all is there, it writes nothing.

    Args:
        source: An exact index, or `EmbeddingShards`, which are read a shard
            at a time.
        uri: "lancedb://FOLDER/TABLE", "lancedb+s3://BUCKET/PATH/TABLE",
            "milvus://HOST:PORT/COLLECTION", "milvus+https://…" with the
            token in the environment variable MILVUS_TOKEN, or
            "milvus://FOLDER/FILE.db/COLLECTION".
        keys: Of shards, the column with the keys; by default their ids.
        metric: Of shards, what scores are, by default "cosine"; see `Index`.
        factory, parameters: The kind of index that the database builds:
            "Flat", "IVF1024,Flat", "IVF1024,SQ8", "IVF1024,PQ16" or "HNSW32".
        overwrite: Whether to replace another index of keras_dml that is
            there. What is somebody else's is never touched.
        batch_size: Rows that are written at a time.

    Returns:
        What was written and compared.

    Raises:
        FileExistsError: If something else is there.
        ImportError: If the extra of that database is not installed.
        OSError: If it cannot be reached, or what it holds is not what was
            written.
        ValueError: If an argument is not as described, or the database
            cannot hold such rows.
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
                "`keys` and `metric` of push are for EmbeddingShards; an index "
                f"has its own. Received: keys={keys!r}, metric={metric!r}."
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
    """Opens an index: the one in a folder, or in a database.

    Args:
        uri: The folder, or an address as of `push`.
        model: The model that made it. A folder has it; a database only knows
            which one it is, and needs it for searches by image.

    Raises:
        FileNotFoundError: If there is no index.
        ImportError: If the extra of that database is not installed.
        OSError: If a database cannot be reached.
        ValueError: If what is there is damaged, not complete or something
            else, or if the model is another one.
    """
    if is_database(uri):
        return Index.open(str(uri), model)
    return Index.load(uri, model)
