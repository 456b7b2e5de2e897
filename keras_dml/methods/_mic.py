"""MIC: an auxiliary encoder explains what classes have in common."""

import logging
from typing import Any

import keras
from keras import ops

from keras_dml import backbones, losses
from keras_dml.losses import MetricLoss
from keras_dml.losses.base import LossLike
from keras_dml.methods._diva import DivaObjective, term_weights
from keras_dml.methods._diva_tasks import LossTask
from keras_dml.methods.declaration import Traits, Uses, declare
from keras_dml.model.head import Head, Linear
from keras_dml.model.loss_weighting import weights_with
from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import register
from keras_dml.utils.types import (
    NonNegative,
    Pooling,
    Reduction,
    Shape,
    Tensor,
    Tensors,
    Units,
)

logger = logging.getLogger(__name__)


@register
class MicHead(Head):
    """Pooled features → class encoder and auxiliary encoder.

    Args:
        embedding_dim: Dimensions of the embedding of either encoder, D.
        **kwargs: See `Head`.

    Returns:
        `{"embedding": (B, D), "parts": (B, 2, D)}`: the unit embedding of the
        class encoder, and both unit embeddings, float32.
    """

    is_plain = False  # Files of models have it as one layer.

    def __init__(self, embedding_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.embedding_dim = embedding_dim
        self.encoders = [
            keras.layers.Dense(
                embedding_dim, dtype=self.dtype_policy, name=name
            )
            for name in ("class", "auxiliary")
        ]

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        for encoder in self.encoders:
            encoder.build((None, features_shape[-1]))

    def linear_layers(self) -> list[Linear]:
        classes, auxiliary = self.encoders
        return [Linear.of(classes), Linear.of(auxiliary, is_rotated=True)]

    def embed(self, pooled: Tensor) -> Tensors:
        # Not a part of `parts`, so that embedding needs no auxiliary encoder.
        embedding, auxiliary = (
            l2_normalize(encoder(pooled)) for encoder in self.encoders
        )
        parts = ops.stack([embedding, auxiliary], axis=1)
        return {"embedding": embedding, "parts": parts}


@register
class SurrogateTask(LossTask):
    """A metric loss that separates by surrogate labels; see `LossTask`."""

    label = "surrogate"


@register
class MicObjective(DivaObjective):
    """A loss for either encoder, and their decorrelation.

    The terms are "metric", the class encoder's loss; "surrogate", the
    auxiliary encoder's loss; and "decorrelation_surrogate", −c of
    `Decorrelation`.

    Args:
        tasks: See `DivaObjective`: a `LossTask` called "metric" and a
            `SurrogateTask` called "surrogate".
        **kwargs: See `DivaObjective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, 2, D).
        targets: Dict with `"label"`, (B,), and optionally `"surrogate"`, (B,),
            surrogate labels from 0. Without them, or where they are −1, the
            "surrogate" term is 0, and a warning is logged.

    Returns:
        A dict with a (B,) tensor for each term.
    """

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        if "surrogate" not in targets:
            logger.warning(
                "mic trains only the class encoder, because its batches have "
                "no surrogate labels. Use batches of a SurrogateSampler and "
                "the callback SurrogateLabels."
            )
            targets = _without_surrogates(outputs, targets)
        surrogates = targets["surrogate"]
        terms = super().call(
            outputs, {**targets, "surrogate": ops.maximum(surrogates, 0)}
        )
        _, auxiliary = self.tasks
        for name in auxiliary.term_weights:
            terms[name] = ops.where(surrogates < 0, 0.0, terms[name])
        return terms

    def evaluate(self, outputs: Tensors, targets: Tensors) -> Tensors:
        """The terms of a held-out batch, which has no surrogate labels."""
        return super().evaluate(outputs, _without_surrogates(outputs, targets))

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        if "surrogate" in targets:
            super().after_step(outputs, targets)


def _without_surrogates(outputs: Tensors, targets: Tensors) -> Tensors:
    """Targets with −1 for surrogate labels that are not known."""
    first = ops.cast(outputs["parts"][:, 0, 0], "int32")
    return {"surrogate": ops.full_like(first, -1), **targets}


def auxiliary_loss_of(loss: MetricLoss, num_surrogates: int) -> MetricLoss:
    """A copy of a loss, or of several, with a weight per surrogate class."""
    if isinstance(loss, losses.WeightedSum):
        copies = {
            name: auxiliary_loss_of(part, num_surrogates)
            for name, part in loss.losses.items()
        }
        return losses.WeightedSum(copies, loss.weights)
    if loss.num_classes is None:
        return loss.copy()
    return loss.copy(num_classes=num_surrogates)


@declare(
    "mic",
    "a second embedding, dropped after training, learns what classes have in "
    "common",
    Traits(
        part="encoder",
        sampler=Uses(
            "SurrogateSampler", arguments=lambda method, batches: batches
        ),
        callbacks=(
            Uses(
                "SurrogateLabels",
                ("every", "standardization"),
                lambda method, batches: {
                    "num_surrogates": method["num_surrogates"]
                },
            ),
        ),
    ),
    examples={
        "num_surrogates": 4,
        "auxiliary_loss": {"name": "triplet", "margin": 0.3},
        "gamma": 0.1,
        "psi_units": 16,
        "reduction": "sum",
        "loss_weights": {"surrogate": 0.5},
    },
)
def mic(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 128,
    num_surrogates: Units = 30,
    loss: LossLike = "margin",
    auxiliary_loss: LossLike | None = None,
    gamma: NonNegative = 2500.0,
    psi_units: Units = 512,
    reduction: Reduction = "mean",
    pooling: Pooling = "avg",
    loss_weights: dict[str, Any] | None = None,
    **kwargs: Any,
) -> MetricModel:
    r"""Mining Interclass Characteristics, MIC (Roth et al., 2019).

    What it computes: two dense layers on shared features. The class encoder
    separates classes. The auxiliary encoder separates surrogate classes, which
    go across classes: the features are standardized within each class, which
    removes the class and leaves pose, light and background, and clustered with
    K-means every T epochs. A small network looks for correlation between both
    embeddings, and reversed gradients remove it, so that what the auxiliary
    encoder explains does not remain in the class encoder:

    $$
    \mathcal{L} = \mathcal{L}_{metric}(\phi_\alpha; y) +
    \mathcal{L}_{metric}(\phi_\beta; \hat{y}) -
    \gamma \, c(\phi_\alpha, \phi_\beta) ,
    $$

    with classes $y$, surrogate classes $\hat{y}$, the unit embeddings
    $\phi_\alpha$ of the class encoder and $\phi_\beta$ of the auxiliary one,
    and $c$ of `Decorrelation`. The test embedding is $\phi_\alpha$ alone.

    Train it with batches of a `data.SurrogateSampler` and with the callback
    `callbacks.SurrogateLabels`, which holds the options of the clustering.

    Args:
        backbone: See `baseline`.
        embedding_dim: Dimensions of the embedding, and of the auxiliary one.
        num_surrogates: Number of surrogate classes: 30 for CUB, 150 for Cars
            and In-Shop, 50 for SOP and VehicleID in the released runs.
        loss: The loss of the class encoder, see `baseline`.
        auxiliary_loss: A different loss for the auxiliary encoder. By default
            a copy of `loss`, in which `num_classes` is `num_surrogates`.
        gamma: γ, the weight of the decorrelation: 2500 for CUB, 500 for Cars,
            250 for the others in the released runs; 0 turns it off.
        psi_units: Hidden units of the network ψ that looks for correlation.
        reduction: "mean" or "sum", of c over dimensions.
        pooling: See `Head`: "avg", "max", "gem", "cls" or "none".
        loss_weights: Weights of single terms: "metric", "surrogate" and
            "decorrelation_surrogate", which overrides `gamma`.
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`.

    Raises:
        ValueError: If an argument is not as described.

    Deviations:
        - One class-balanced batch trains both encoders. The released code
          alternates: steps on class-balanced batches, and, with probability
          0.8 after each (0.5 for SOP and VehicleID), steps on batches that are
          balanced in surrogate classes.
        - The released code gives 20 % of the images of a surrogate batch the
          label of another surrogate class, against overfitting.
        - Surrogate labels are found as `callbacks.SurrogateLabels` describes.
        - c is a mean over dimensions, as in the released code, to which γ
          refers; `reduction="sum"` is D times as large.

    Reference:
        Roth et al., "MIC: Mining Interclass Characteristics for Improved
        Metric Learning", ICCV 2019, https://arxiv.org/abs/1909.11574.
    """
    class_loss = losses.get(loss)
    auxiliary = (
        auxiliary_loss_of(class_loss, num_surrogates)
        if auxiliary_loss is None
        else losses.get(auxiliary_loss)
    )
    objective = MicObjective(
        [
            LossTask(class_loss, name="metric"),
            SurrogateTask(auxiliary, name="surrogate"),
        ],
        decorrelate=gamma != 0,
        psi_units=psi_units,
        reduction=reduction,
        name="objective",
    )
    weights = term_weights(objective, 1.0, gamma)
    return MetricModel(
        backbone=backbones.get(backbone),
        head=MicHead(embedding_dim, pooling=pooling, name="head"),
        objective=objective,
        loss_weights=weights_with(weights, loss_weights),
        **kwargs,
    )
