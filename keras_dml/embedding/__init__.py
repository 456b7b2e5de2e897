"""Embedding examples, into an array or a folder of Parquet shards.

`embed` returns an array; start there. `embed_shards` is for millions of
examples: `source` divides them into parts, `shard_work` embeds a part in a
worker of a pool and writes it as a shard, and `making` skips the shards that
are finished and writes the manifest that lists them all. `shards` reads such a
folder, on a disk or at a URL (`storage`). The room uses data, models and
`pools`; it knows nothing of evaluation and search.
"""

from keras_dml.embedding._embed import embed
from keras_dml.embedding._embed_shards import embed_shards, write_shards
from keras_dml.embedding.mapped import MappedEmbeddings
from keras_dml.embedding.shards import EmbeddingShards, Shard

__all__ = [
    "EmbeddingShards",
    "MappedEmbeddings",
    "Shard",
    "embed",
    "embed_shards",
    "write_shards",
]
