"""Baseline: one embedding, one loss."""

from typing import Any

import keras
from keras import ops

from keras_dml import backbones, losses
from keras_dml.losses.base import LossLike
from keras_dml.methods.declaration import declare
from keras_dml.model.head import Head
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Pooling, Shape, Tensor, Tensors, Units


@register
class EmbeddingHead(Head):
    """Pooled features → `Dense(embedding_dim)` → unit embedding.

    Args:
        embedding_dim: Dimensions of the embedding, D.
        **kwargs: See `Head`.

    Returns:
        `{"embedding": (B, D)}`, unit rows, float32.
    """

    def __init__(self, embedding_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.embedding_dim = embedding_dim
        self.dense = keras.layers.Dense(
            embedding_dim, dtype=self.dtype_policy, name="dense"
        )

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        self.dense.build((None, features_shape[-1]))

    def embed(self, pooled: Tensor) -> Tensors:
        embedding = ops.normalize(self.dense(pooled), axis=-1, epsilon=1e-12)
        return {"embedding": embedding}


@register
class EmbeddingObjective(LossObjective):
    """One metric loss on the embedding.

    Args:
        loss: See `LossObjective`.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: Dict with `"embedding"`, (B, D).
        targets: Dict with `"label"`, (B,).

    Returns:
        `{"metric": (B,)}`; with several losses, each under its own name.
    """

    def __init__(self, loss: losses.MetricLoss, **kwargs: Any) -> None:
        super().__init__(loss, **kwargs)
        self.split_terms()

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        return self.loss.term_values(targets["label"], outputs["embedding"])


@declare("baseline", "one embedding, one loss")
def baseline(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 128,
    loss: LossLike = "margin",
    pooling: Pooling = "avg",
    **kwargs: Any,
) -> MetricModel:
    r"""The single-embedding model that every ensemble is compared with.

    What it computes: backbone → pooling → `Dense(embedding_dim)` → unit
    embedding, trained by one metric loss:

    $$
    \mathcal{L} = \mathcal{L}_{metric}(x) , \qquad
    x = \frac{W f + b}{\| W f + b \|} ,
    $$

    where $f$ are the pooled features of an image.

    [The method's page](../methods/baseline.md) has a drawing, costs
    and results.

    Args:
        backbone: A name or path for `backbones.get`, or a Keras model, such as
            it returns, from images (B, H, W, C) to features.
        embedding_dim: Dimensions of the embedding, D.
        loss: A loss of `keras_dml.losses`, its name or its config; several
            losses with weights, `{"contrastive": 1.0, "triplet": 0.5}`, each a
            separate term; or a function. See `losses.get`.
        pooling: See `Head`: "avg", "max", "gem", "cls" or "none".
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, built and ready for `compile`.
    """
    return MetricModel(
        backbone=backbones.get(backbone),
        head=EmbeddingHead(embedding_dim, pooling=pooling, name="head"),
        objective=EmbeddingObjective(losses.get(loss), name="objective"),
        **kwargs,
    )
