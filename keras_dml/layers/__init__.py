"""Keras layers: each usable alone in a plain functional model."""

from keras_dml.layers.embedding_slicer import EmbeddingSlicer
from keras_dml.layers.frozen_batch_normalization import (
    FrozenBatchNormalization,
)

__all__ = ["EmbeddingSlicer", "FrozenBatchNormalization"]
