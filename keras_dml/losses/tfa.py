"""TensorFlow Addons' metric losses, under their names and arguments.

TensorFlow Addons ended in May 2024 and does not import beside Keras 3.
These take its arguments and match the numbers of its version 0.23, save
where that is wrong: a loss for anchors without a positive or without a
negative, and non-finite gradients. Like the originals they do not
normalize the embeddings.
"""

from typing import Any

import keras
from keras import ops

from keras_dml.losses._lifted_structure import lifted_structure
from keras_dml.losses._triplet import triplet
from keras_dml.losses.base import MetricLoss
from keras_dml.losses.pairs import pair_masks
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.serialization import Serializable
from keras_dml.utils.types import Tensor

DISTANCE_METRICS = {
    "L2": "euclidean",
    "squared-L2": "squared",
    "angular": "cosine",
}
"""TensorFlow Addons' names of distances, and this library's."""

_register = keras.saving.register_keras_serializable(package="keras_dml.tfa")


def triplet_semihard(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    *,
    margin: float = 1.0,
    distance_metric: str = "L2",
) -> Tensor:
    """Semi-hard triplet loss, (B,); see `TripletSemiHardLoss`."""
    return triplet(
        labels,
        embeddings,
        ref_labels,
        ref_embeddings,
        margin=margin,
        distance=DISTANCE_METRICS[distance_metric],
        mining="semihard",
        reduction="mean",
    )


def triplet_hard(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    *,
    margin: float = 1.0,
    soft: bool = False,
    distance_metric: str = "L2",
) -> Tensor:
    """Batch-hard triplet loss, (B,); see `TripletHardLoss`."""
    return triplet(
        labels,
        embeddings,
        ref_labels,
        ref_embeddings,
        margin=0.0 if soft else margin,
        soft_margin=soft,
        distance=DISTANCE_METRICS[distance_metric],
        mining="hard",
        reduction="sum_over_pairs",
    )


def lifted_struct(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    *,
    margin: float = 1.0,
) -> Tensor:
    """Lifted structure loss, (B,); see `LiftedStructLoss`."""
    return lifted_structure(
        labels,
        embeddings,
        ref_labels,
        ref_embeddings,
        margin=margin,
        distance="euclidean",
    )


def npairs(
    labels: Tensor,
    logits: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
) -> Tensor:
    """N-pairs loss of (B, B) logits, (B,); see `NpairsLoss`."""
    same, _ = pair_masks(labels, ref_labels, exclude_self=False)
    same = ops.cast(same, "float32")
    targets = same / ops.sum(same, axis=1, keepdims=True)
    log_total = ops.logsumexp(logits, axis=1)
    return log_total - ops.sum(targets * logits, axis=1)


class _AddonsLoss(MetricLoss):
    """Base: embeddings as they are, unless `normalize` says otherwise."""

    def __init__(self, normalize: bool = False, **kwargs: Any) -> None:
        super().__init__(normalize=normalize, **kwargs)


@_register
class TripletSemiHardLoss(_AddonsLoss):
    """`tfa.losses.TripletSemiHardLoss`.

    Args:
        margin: Margin, in units of the distance.
        distance_metric: "L2", "squared-L2" or "angular".
        name: Name of the instance.
        **kwargs: As for `MetricLoss`; `normalize` is False by default.

    Raises:
        ValueError: If `distance_metric` is unknown.

    Deviations:
        - Anchors without a negative have no loss.
    """

    function = staticmethod(triplet_semihard)

    def __init__(
        self,
        margin: float = 1.0,
        distance_metric: str = "L2",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        _check_metric("TripletSemiHardLoss", distance_metric)
        self.margin = margin
        self.distance_metric = distance_metric


@_register
class TripletHardLoss(_AddonsLoss):
    """`tfa.losses.TripletHardLoss`.

    Args:
        margin: Margin, in units of the distance; not used if `soft`.
        soft: Whether log(1 + exp(·)) replaces the hinge.
        distance_metric: "L2", "squared-L2" or "angular".
        name: Name of the instance.
        **kwargs: As for `MetricLoss`; `normalize` is False by default.

    Raises:
        ValueError: If `distance_metric` is unknown.

    Deviations:
        - Anchors without a positive or without a negative have no loss;
          they still count in the mean, as in the original.
    """

    function = staticmethod(triplet_hard)

    def __init__(
        self,
        margin: float = 1.0,
        soft: bool = False,
        distance_metric: str = "L2",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        _check_metric("TripletHardLoss", distance_metric)
        self.margin = margin
        self.soft = soft
        self.distance_metric = distance_metric


@_register
class LiftedStructLoss(_AddonsLoss):
    """`tfa.losses.LiftedStructLoss`.

    Args:
        margin: Margin, in units of Euclidean distance.
        name: Name of the instance.
        **kwargs: As for `MetricLoss`; `normalize` is False by default.
    """

    function = staticmethod(lifted_struct)

    def __init__(
        self, margin: float = 1.0, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.margin = margin


@_register
class NpairsLoss(_AddonsLoss):
    """`tfa.losses.NpairsLoss`: cross entropy of (B, B) similarities.

    Called with class ids (B,) and logits (B, B), row i the similarities of
    example i to all, itself included.

    Args:
        name: Name of the instance.
        **kwargs: As for `MetricLoss`.
    """

    function = staticmethod(npairs)

    def __init__(self, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)


@_register
class ContrastiveLoss(Serializable, keras.losses.Loss):
    """`tfa.losses.ContrastiveLoss`: of given pairs and their distances.

    y d² + (1 − y) [m − d]₊². Called with y, 1 for a positive pair and 0
    for a negative one, and distances d, both (B,).

    Args:
        margin: m, a distance.
        reduction: As for `keras.losses.Loss`.
        name: Name of the instance.
    """

    def __init__(
        self,
        margin: float = 1.0,
        reduction: str = "sum_over_batch_size",
        name: str | None = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction)
        self.margin = margin

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        lack = ops.relu(self.margin - y_pred)
        return y_true * y_pred**2 + (1.0 - y_true) * lack**2


def _check_metric(owner: str, distance_metric: Any) -> None:
    check_choice(owner, "distance_metric", distance_metric, DISTANCE_METRICS)
