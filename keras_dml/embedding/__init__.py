"""Embedding examples, into an array or a folder of Parquet shards.

`embed` returns an array; start there, in in_memory.py; engines.py computes, by
Keras, OpenVINO, a function or an exported file. `embed_shards` in
shards.py is for millions of examples: it skips shards that are finished, and
embeds and writes the others, also on a Ray cluster (on_ray.py), to a folder on
a disk or at a URL, which `EmbeddingShards` reads.
It uses data and models, and nothing of evaluation and search.
"""

from keras_dml.embedding.in_memory import embed
from keras_dml.embedding.shards import (
    EmbeddingShards,
    Shard,
    embed_shards,
    write_shards,
)

__all__ = ["EmbeddingShards", "Shard", "embed", "embed_shards", "write_shards"]
