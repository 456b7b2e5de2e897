"""Baseline: one embedding, one loss."""

from typing import Any, Literal, TypeAlias

import keras

from keras_dml import backbones, losses
from keras_dml.losses.base import LossLike
from keras_dml.methods.declaration import declare
from keras_dml.model.head import Head, Linear
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Pooling, Shape, Tensor, Tensors, Units

LossInput: TypeAlias = Literal["embedding", "activation"]

# PyTorch's default, and so that of the papers' code; Keras's is 1e-3.
_NORM_EPSILON = 1e-5


@register
class EmbeddingHead(Head):
    """Pooled features → `Dense(embedding_dim)` → unit embedding.

    Args:
        embedding_dim: Dimensions of the embedding, D.
        layer_norm: Whether the pooled features of an image are first
            standardized to mean 0 and variance 1 over the channels: layer
            normalization without trainable scale and offset.
        activation: Whether to return also the output of the dense layer before
            it is scaled to unit length.
        **kwargs: See `Head`.

    Returns:
        `{"embedding": (B, D)}`, unit rows, float32; with `activation`, also
        `"activation"`, (B, D), of any length.
    """

    def __init__(
        self,
        embedding_dim: int,
        layer_norm: bool = False,
        activation: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.embedding_dim = embedding_dim
        self.activation = activation
        self.layer_norm = layer_norm
        self.dense = keras.layers.Dense(
            embedding_dim, dtype=self.dtype_policy, name="dense"
        )
        self.norm = keras.layers.LayerNormalization(
            epsilon=_NORM_EPSILON,
            center=False,
            scale=False,
            dtype=self.dtype_policy,
            name="norm",
        )

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        self.dense.build((None, features_shape[-1]))
        self.norm.build((None, features_shape[-1]))

    def linear_layers(self) -> list[Linear]:
        return [Linear.of(self.dense)]

    def linear_inputs(
        self, features: Tensor, mask: Tensor | None = None
    ) -> list[Tensor]:
        pooled = self.pool(features, mask)
        return [self.norm(pooled) if self.layer_norm else pooled]

    def embed(self, pooled: Tensor) -> Tensors:
        if self.layer_norm:
            pooled = self.norm(pooled)
        activation = self.dense(pooled)
        embedding = l2_normalize(activation)
        if not self.activation:
            return {"embedding": embedding}
        return {"embedding": embedding, "activation": activation}


@register
class EmbeddingObjective(LossObjective):
    """One metric loss on the embedding.

    Args:
        loss: See `LossObjective`.
        loss_input: Name of the output that the loss is given, and that its
            memory stores, if it has one.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: Dict with `"embedding"` or `"activation"`, (B, D).
        targets: Dict with `"label"`, (B,).

    Returns:
        `{"metric": (B,)}`; with several losses, each under its own name.
    """

    def __init__(
        self,
        loss: losses.MetricLoss,
        loss_input: LossInput = "embedding",
        **kwargs: Any,
    ) -> None:
        super().__init__(loss, **kwargs)
        self.loss_input = loss_input
        self.split_terms()

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        return self.loss.term_values(targets["label"], outputs[self.loss_input])


@declare(
    "baseline",
    "one embedding, one loss",
    examples={
        "pooling": "avg_max",
        "layer_norm": True,
        "loss_input": "activation",
        "loss_weights": {"metric": "learned"},
        "rate_multipliers": {"backbone": 0.5},
    },
)
def baseline(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 128,
    loss: LossLike = "margin",
    pooling: Pooling = "avg",
    layer_norm: bool = False,
    loss_input: LossInput = "embedding",
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

    Args:
        backbone: A name or path for `backbones.get`, or a Keras model, such as
            it returns, from images (B, H, W, C) to features.
        embedding_dim: Dimensions of the embedding, D.
        loss: A loss of `keras_dml.losses`, its name or its config; several
            losses with weights, `{"contrastive": 1.0, "triplet": 0.5}`, each a
            separate term; or a function. See `losses.get`.
        pooling: See `Head`: "avg", "max", "avg_max", "gem", "cls" or "none".
        layer_norm: See `EmbeddingHead`: layer normalization of $f$.
        loss_input: What the loss is given: the unit "embedding" $x$, or the
            "activation" $W f + b$, for losses that do not normalize and for
            which the length means something, such as `hyperbolic` and
            `n_pair`. The model's embedding is $x$ in either case.
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, built and ready for `compile`.

    Raises:
        ValueError: If `loss_input` is unknown.
    """
    return MetricModel(
        backbone=backbones.get(backbone),
        head=EmbeddingHead(
            embedding_dim,
            layer_norm=layer_norm,
            activation=loss_input == "activation",
            pooling=pooling,
            name="head",
        ),
        objective=EmbeddingObjective(
            losses.get(loss), loss_input, name="objective"
        ),
        **kwargs,
    )
