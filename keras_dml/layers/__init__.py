"""Keras layers, each usable on its own in any functional model.

Open first: `embedding_slicer`, the shortest, then `compositor`,
`attention_ensemble` and `attentive_grouping`: each file has the layer of one
paper, written with `keras.ops` alone. `grouping` has the base classes of layers
with groups, `pooling` turns maps and tokens into vectors, `memory` is a queue.

Imports: `utils`.
"""

from keras_dml.layers.attention_ensemble import AttentionEnsemble
from keras_dml.layers.attentive_grouping import AttentiveGrouping
from keras_dml.layers.compositor import Compositor
from keras_dml.layers.embedding_slicer import EmbeddingSlicer
from keras_dml.layers.frozen_batch_normalization import FrozenBatchNormalization
from keras_dml.layers.gradient_reversal import GradientReversal
from keras_dml.layers.grouping import (
    ChannelGrouping,
    GateGrouping,
    Grouping,
    LinearGrouping,
)
from keras_dml.layers.local_response_normalization import (
    LocalResponseNormalization,
)
from keras_dml.layers.memory import EmbeddingQueue
from keras_dml.layers.pooling import FeaturePooling
from keras_dml.layers.token_mask import TokenMask

__all__ = [
    "AttentionEnsemble",
    "AttentiveGrouping",
    "ChannelGrouping",
    "Compositor",
    "EmbeddingQueue",
    "EmbeddingSlicer",
    "FeaturePooling",
    "FrozenBatchNormalization",
    "GateGrouping",
    "GradientReversal",
    "Grouping",
    "LinearGrouping",
    "LocalResponseNormalization",
    "TokenMask",
]
