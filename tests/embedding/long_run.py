"""Embeds images that take a while into shards; `test_killed` ends it.

python long_run.py OUT WORKERS
"""

import sys
import warnings

import keras
import numpy as np

from keras_dml import backbones
from keras_dml.data import ImageSet
from keras_dml.embedding import EmbeddingShards, embed_shards

COUNT, ROWS_PER_SHARD = 1600, 40


def network() -> keras.Model:
    keras.utils.set_random_seed(0)
    backbone = backbones.small_convnet((48, 48, 1))
    pooled = keras.layers.GlobalAveragePooling2D()(backbone.output)
    return keras.Model(backbone.input, pooled)


def images() -> ImageSet:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (COUNT, 48, 48), dtype=np.uint8)
    return ImageSet(pixels, np.arange(COUNT) % 7)


def embedded(out: str, workers: int, **options) -> EmbeddingShards:
    return embed_shards(
        network(),
        images(),
        out,
        workers=workers,
        rows_per_shard=ROWS_PER_SHARD,
        batch_size=ROWS_PER_SHARD,
        **options,
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    embedded(sys.argv[1], int(sys.argv[2]))
