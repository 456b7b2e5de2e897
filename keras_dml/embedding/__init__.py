"""Embedding examples, into an array or a folder of Parquet shards."""

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
