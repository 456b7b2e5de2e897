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

from keras_dml.losses._all_pairs import LiftedStructureLoss
from keras_dml.losses._functional import functional
from keras_dml.losses._triplet import TripletLoss
from keras_dml.losses.base import MetricLoss
from keras_dml.losses.pairs import Batch, pair_masks
from keras_dml.losses.reductions import ReductionLike
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.serialization import Serializable
from keras_dml.utils.types import Tensor

DISTANCE_METRICS = {
    "L2": "euclidean",
    "squared-L2": "squared",
    "angular": "cosine",
}
"""TensorFlow Addons' names of distances, and this library's."""

_lifted_structure = functional("lifted_structure", LiftedStructureLoss)
_triplet = functional("triplet", TripletLoss)
_register = keras.saving.register_keras_serializable(package="keras_dml.tfa")


class _AddonsLoss(MetricLoss):
    """Base: a loss of this library, of embeddings as they are by default."""

    weights_pairs = True

    def __init__(self, normalize: bool = False, **kwargs: Any) -> None:
        super().__init__(normalize=normalize, **kwargs)

    def check_metric(self, metric: str) -> None:
        owner = type(self).__name__
        check_choice(owner, "distance_metric", metric, DISTANCE_METRICS)


@_register
class TripletSemiHardLoss(_AddonsLoss):
    """`tfa.losses.TripletSemiHardLoss`.

    Args:
        margin: Margin, in units of the distance.
        distance_metric: "L2", "squared-L2" or "angular".
        name, **kwargs: As for `MetricLoss`; `normalize` is False by default.

    Raises:
        ValueError: If `distance_metric` is unknown.

    Deviations:
        - Anchors without a negative have no loss.
    """

    def __init__(
        self,
        margin: float = 1.0,
        distance_metric: str = "L2",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.check_metric(distance_metric)
        self.margin = margin
        self.distance_metric = distance_metric

    def call(self, batch: Batch) -> Tensor:
        distance = DISTANCE_METRICS[self.distance_metric]
        return _triplet(
            *batch,
            margin=self.margin,
            distance=distance,
            reduction=self.reduction,
        )


@_register
class TripletHardLoss(_AddonsLoss):
    """`tfa.losses.TripletHardLoss`.

    Args:
        margin: As for `TripletSemiHardLoss`; not used if `soft`.
        soft: Whether log(1 + exp(·)) replaces the hinge.
        distance_metric, name, **kwargs: As for `TripletSemiHardLoss`.
        reduction: As for `MetricLoss`; by default the mean over all anchors.

    Raises:
        ValueError: If `distance_metric` is unknown.

    Deviations:
        - Anchors without a positive or without a negative have no loss;
          they still count in the mean, as in the original.
    """

    def __init__(
        self,
        margin: float = 1.0,
        soft: bool = False,
        distance_metric: str = "L2",
        name: str | None = None,
        reduction: ReductionLike = "sum_over_pairs",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, reduction=reduction, **kwargs)
        self.check_metric(distance_metric)
        self.margin = margin
        self.soft = soft
        self.distance_metric = distance_metric

    def call(self, batch: Batch) -> Tensor:
        return _triplet(
            *batch,
            margin=0.0 if self.soft else self.margin,
            soft_margin=self.soft,
            distance=DISTANCE_METRICS[self.distance_metric],
            mining="hard",
            reduction=self.reduction,
        )


@_register
class LiftedStructLoss(_AddonsLoss):
    """`tfa.losses.LiftedStructLoss`.

    Args:
        margin: Margin, in units of Euclidean distance.
        name, **kwargs: As for `TripletSemiHardLoss`.
    """

    def __init__(
        self, margin: float = 1.0, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.margin = margin

    def call(self, batch: Batch) -> Tensor:
        return _lifted_structure(
            *batch, margin=self.margin, reduction=self.reduction
        )


@_register
class NpairsLoss(_AddonsLoss):
    """`tfa.losses.NpairsLoss`: cross entropy of (B, B) similarities.

    Called with class ids (B,) and logits (B, B), row i the similarities of
    example i to all, itself included.

    Args:
        name, **kwargs: As for `MetricLoss`.
    """

    weights_pairs = False

    def __init__(self, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def call(self, batch: Batch) -> Tensor:
        return self.reduce(npairs(*batch[:4]))


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


triplet_semihard = functional("triplet_semihard", TripletSemiHardLoss)
triplet_hard = functional("triplet_hard", TripletHardLoss)
lifted_struct = functional("lifted_struct", LiftedStructLoss)


@_register
class ContrastiveLoss(Serializable, keras.losses.Loss):
    """`tfa.losses.ContrastiveLoss`: of given pairs and their distances.

    y d² + (1 − y) [m − d]₊². Called with y, 1 for a positive pair and 0
    for a negative one, and distances d, both (B,).

    Args:
        margin: m, a distance.
        reduction, name: As for `keras.losses.Loss`.
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
