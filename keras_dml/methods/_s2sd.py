"""S2SD: an embedding learns from larger ones that train beside it."""

from collections.abc import Sequence
from typing import Annotated, Any

import keras
from annotated_types import Ge, Le
from keras import layers
from keras.optimizers import schedules

from keras_dml import backbones, losses
from keras_dml.losses.base import LossLike
from keras_dml.losses.composite import rescale
from keras_dml.losses.distillation import similarity_divergence
from keras_dml.methods._baseline import EmbeddingHead
from keras_dml.methods.declaration import declare
from keras_dml.model.loss_weighting import weights_with
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective
from keras_dml.utils.arguments import check_not_empty
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import (
    NonNegative,
    Pooling,
    Positive,
    Shape,
    Shapes,
    Tensor,
    Tensors,
    Units,
)


@register
class FeaturesHead(EmbeddingHead):
    """An `EmbeddingHead` that also returns its input features.

    Args:
        embedding_dim: Dimensions of the embedding, D.
        **kwargs: See `Head`.

    Returns:
        `{"embedding": (B, D), "features": (B, C)}`: unit rows, float32, and
        the pooled features.
    """

    def embed(self, pooled: Tensor) -> Tensors:
        return {**super().embed(pooled), "features": pooled}


@register
class TargetSpace(SerializableLayer):
    """A larger embedding of the same features, with a loss of its own.

    Args:
        loss: The metric loss, of which it owns the variables.
        units: Dimensions of the target space; also of the hidden layer.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        features: (B, C).

    Returns:
        (B, units), unit rows.
    """

    def __init__(
        self, loss: losses.MetricLoss, units: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.loss = loss
        self.units = units
        self.network = keras.Sequential(
            [
                layers.Dense(
                    units, "relu", dtype=self.dtype_policy, name="hidden"
                ),
                layers.Dense(units, dtype=self.dtype_policy, name="output"),
            ],
            name="network",
        )

    def build(self, features_shape: Shape) -> None:
        self.network.build(features_shape)
        self.loss.build(self, self.units)

    def call(self, features: Tensor) -> Tensor:
        return l2_normalize(self.network(features))


@register
class SelfDistillation(LossObjective):
    """A metric loss in every space, and distillation into the embedding.

    Args:
        loss: The loss of the embedding; every target space has a copy.
        target_dims: Dimensions of the target spaces.
        temperature: See `s2sd`.
        distill_features: See `s2sd`.
        **kwargs: See `LossObjective`.

    Call arguments:
        outputs: Dict with `"embedding"`, (B, D), and `"features"`, (B, C).
        targets: Dict with `"label"`, (B,).

    Returns:
        Up to four terms, (B,) each. "metric": the loss of the embedding (with
        several losses, each under its own name). "targets": the mean loss of
        the target spaces. "distillation": the mean divergence of the
        embedding's similarities from theirs. "features": that from the
        similarities of the features, if `distill_features` is set.
    """

    terms: tuple[str, ...] = ("metric", "targets", "distillation", "features")

    def __init__(
        self,
        loss: losses.MetricLoss,
        target_dims: Sequence[Units],
        temperature: float = 1.0,
        distill_features: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(loss, **kwargs)
        check_not_empty("s2sd", "target_dims", target_dims)
        self.target_dims = list(target_dims)
        self.temperature = temperature
        self.distill_features = distill_features
        if not distill_features:
            self.terms = self.terms[:-1]
        self.split_terms()
        self.spaces = [
            TargetSpace(
                self.loss.copy(),
                dim,
                dtype=self.dtype_policy,
                name=f"target_{i}",
            )
            for i, dim in enumerate(target_dims)
        ]

    def build(self, outputs_shape: Shapes) -> None:
        super().build(outputs_shape)
        for space in self.spaces:
            space.build(outputs_shape["features"])

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        labels, embedding = targets["label"], outputs["embedding"]
        features = outputs["features"]
        larger = [space(features) for space in self.spaces]
        values = [
            space.loss.per_example(labels, x)
            for space, x in zip(self.spaces, larger, strict=True)
        ]
        terms = {
            **self.loss.term_values(labels, embedding),
            "targets": sum(values) / len(values),
            "distillation": self._divergence(embedding, larger),
        }
        if self.distill_features:
            terms["features"] = self._divergence(embedding, [features])
        return terms

    def _divergence(self, embedding: Tensor, spaces: list[Tensor]) -> Tensor:
        values = [
            similarity_divergence(embedding, space, self.temperature)
            for space in spaces
        ]
        return sum(values) / len(values)

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        super().after_step(outputs, targets)
        if self.loss.has_memory:
            for space in self.spaces:
                embedded = space(outputs["features"])
                space.loss.remember(targets["label"], embedded)


def term_weights(
    objective: SelfDistillation, gamma: float, warmup: int
) -> dict[str, Any]:
    """The weight of every term: ½, ½, γ, and γ after the warm-up."""
    weights = rescale("s2sd", 0.5, objective.loss.term_weights)
    weights |= {"targets": 0.5, "distillation": gamma}
    if objective.distill_features:
        weights["features"] = gamma
        if warmup:
            # Keras changes the value in the step after a boundary.
            weights["features"] = schedules.PiecewiseConstantDecay(
                [warmup - 1], [0.0, gamma]
            )
    return weights


@declare(
    "s2sd",
    "one embedding that learns from larger ones, which exist only in training",
    examples={
        "target_dims": [12, 14],
        "gamma": 2.0,
        "temperature": 0.5,
        "warmup": 3,
        "pooling": "max",
        "loss_weights": {"features": 0.5},
    },
)
def s2sd(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 128,
    target_dims: tuple[Units, ...] = (512, 1024, 1536, 2048),
    loss: LossLike = "multi_similarity",
    gamma: NonNegative = 50.0,
    temperature: Positive = 1.0,
    distill_features: bool = True,
    warmup: Annotated[int, Ge(0), Le(2**31 - 1)] = 1000,
    pooling: Pooling = "avg",
    loss_weights: dict[str, Any] | None = None,
    **kwargs: Any,
) -> MetricModel:
    r"""Simultaneous Similarity-based Self-Distillation (Roth et al., 2021).

    What it computes: backbone → pooling → `Dense(embedding_dim)` → unit
    embedding f. Beside it, m networks of two dense layers map the same
    features φ to larger unit embeddings g_i, each trained by a metric loss of
    its own. f learns to relate the examples of a batch as each g_i does, and
    after a warm-up as the features do. For F, the matrix of cosine
    similarities of a batch in f, G in g_i, and the softmax σ over each row,

    $$
    \mathcal{L} = \frac{1}{2} \left( \mathcal{L}_{metric}(f) +
    \frac{1}{m} \sum_i \mathcal{L}_{metric}(g_i) \right) +
    \frac{\gamma}{m} \sum_i \mathcal{L}_{dist}(f, g_i) +
    \gamma \, \mathcal{L}_{dist}(f, \phi) ,
    $$

    $$
    \mathcal{L}_{dist}(f, g) = \frac{1}{B} \sum_b
    D_{KL}\left( \sigma(G_b / T), \, \sigma(F_b / T) \right) .
    $$

    No gradient of the last two terms reaches g_i, or φ as a target. The
    target spaces only exist in training: embedding an image costs as much as
    with `baseline`.

    With one target space and without `distill_features` this is the paper's
    DSD, with several MSD, and with `distill_features` MSDF.

    Args:
        backbone: See `baseline`.
        embedding_dim: Dimensions of the embedding, D.
        target_dims: Dimensions of each target space. They are meant to be
            larger than D.
        loss: The loss of every space, see `baseline`. Each target space has a
            copy with variables of its own.
        gamma: γ, the weight of both terms of distillation, which
            `loss_weights` can change one by one: "distillation" and
            "features".
        temperature: T.
        distill_features: Whether to also learn from the features.
        warmup: Number of steps before the features are learned from.
        pooling: See `Head`: "avg", "max", "avg_max", "gem", "cls" or "none".
        loss_weights: Weights of single terms, which override those above. A
            number for "features" counts after the warm-up; a schedule replaces
            it.
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`.

    Raises:
        ValueError: If there is no target space.

    Deviations:
        - The direction of the divergence, of f from g, and the factor T² are
          those of the released code.
        - The released code can add max-pooled features to those of the target
          spaces. Here, `pooling="avg_max"` does so for all spaces.
        - A loss with a memory stores what a target space gives after the
          update, with weights that are one step newer.

    Reference:
        Roth et al., "Simultaneous Similarity-based Self-Distillation for Deep
        Metric Learning", ICML 2021, https://arxiv.org/abs/2009.08348.
    """
    objective = SelfDistillation(
        losses.get(loss),
        target_dims,
        temperature,
        distill_features,
        name="objective",
    )
    weights = term_weights(objective, gamma, warmup)
    return MetricModel(
        backbone=backbones.get(backbone),
        head=FeaturesHead(embedding_dim, pooling=pooling, name="head"),
        objective=objective,
        loss_weights=weights_with(weights, loss_weights),
        **kwargs,
    )
