"""`keras-dml push`."""

from typing import TYPE_CHECKING, Any

import click

from keras_dml.cli.common import command_body, example, say
from keras_dml.cli.json_output import answer, json_option

if TYPE_CHECKING:
    from keras_dml.embedding import EmbeddingShards
    from keras_dml.search import Index


@click.command(
    epilog=example(
        "keras-dml push indexes/q lancedb://galleries/glyphs",
    )
)
@click.argument(
    "source", metavar="INDEX_OR_SHARDS", type=click.Path(file_okay=False)
)
@click.argument("uri")
@click.option(
    "--key",
    "keys",
    metavar="COLUMN",
    help="For shards: the column with unique keys of the rows. [default: the "
    "ids]",
)
@click.option(
    "--metric",
    type=click.Choice(["cosine", "dot", "euclidean"]),
    help="For shards: the definition of the scores. [default: cosine]",
)
@click.option(
    "--factory",
    default="Flat",
    help="Type of index that the database builds: Flat is exact; "
    "IVF1024,Flat, IVF1024,PQ16 and HNSW32 are faster.",
)
@click.option(
    "--parameters",
    help="Search parameters: nprobe=32 for IVF, efSearch=64 for HNSW.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=5000,
    help="Number of rows written at a time.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace an existing index; tables this tool did not create are never "
    "touched.",
)
@json_option
@command_body
def push(
    source: str,
    uri: str,
    keys: str | None,
    metric: Any,
    **options: Any,
) -> None:
    """Copy an index or embeddings in shards to a database.

    INDEX_OR_SHARDS is the folder of an index or of embeddings. URI is
    lancedb://FOLDER/TABLE, lancedb+s3://BUCKET/PATH/TABLE,
    milvus://HOST:PORT/COLLECTION, milvus+https://HOST:PORT/COLLECTION with
    the token in MILVUS_TOKEN, or milvus://FOLDER/FILE.db/COLLECTION.

    The same command continues an interrupted copy of embeddings in shards.
    """
    from keras_dml import search

    given = {"keys": keys, "metric": metric}
    named = {name: x for name, x in given.items() if x is not None}
    pushed = search.push(_read(source), uri, **named, **options)
    answer(vars(pushed))
    say(str(pushed))


def _read(source: str) -> "Index | EmbeddingShards":
    from keras_dml.embedding import EmbeddingShards
    from keras_dml.search import Index, is_index

    return Index.load(source) if is_index(source) else EmbeddingShards(source)
