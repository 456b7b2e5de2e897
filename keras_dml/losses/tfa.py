"""The metric losses of TensorFlow Addons, with its names and arguments.

TensorFlow Addons reached its end of life in May 2024 and cannot be imported
together with Keras 3. These losses take its arguments and match the numbers of
its version 0.23, except where it is wrong: it assigns a loss to anchors without
a positive or without a negative, and has non-finite gradients. Like the
originals, they do not normalize the embeddings.
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
    r"""`tfa.losses.TripletSemiHardLoss`.

    $$
    \ell_{ap} = \left[ d(a, p) - d(a, n) + m \right]_+
    $$

    for every positive pair, where n is the closest negative beyond p, or, if
    there is none, the farthest.

    Labels:
        (B,) class ids, integers of any size. Embeddings are not normalized.

    Args:
        margin: Margin, in units of the distance.
        distance_metric: "L2", "squared-L2" or "angular".
        name, **kwargs: As for `MetricLoss`; `normalize` is False by default.

    Raises:
        ValueError: If `distance_metric` is unknown.

    Deviations:
        - Anchors without a negative have no loss.

    Also known as:
        - Here: `TripletLoss(margin, distance="euclidean", normalize=False)`,
          and for "squared-L2" `distance="squared"`.
        - sentence-transformers: `BatchSemiHardTripletLoss(margin=margin)`.

    Example:
        `tfa.TripletSemiHardLoss(0.5)(labels, embeddings)`
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
    r"""`tfa.losses.TripletHardLoss`.

    $$
    \ell_a = \left[ \max_p d(a, p) - \min_n d(a, n) + m \right]_+
    $$

    for every anchor a; or, with `soft`, log(1 + exp(·)) of the difference of
    both distances.

    Labels:
        (B,) class ids, integers of any size. Embeddings are not normalized.

    Args:
        margin: As for `TripletSemiHardLoss`; not used if `soft`.
        soft: Whether log(1 + exp(·)) replaces the hinge.
        distance_metric, name, **kwargs: As for `TripletSemiHardLoss`.
        reduction: As for `MetricLoss`; by default, the mean over all anchors.

    Raises:
        ValueError: If `distance_metric` is unknown.

    Deviations:
        - Anchors without a positive or without a negative have no loss; as in
          the original, they still count in the mean.

    Also known as:
        - Here: `TripletLoss(margin, distance="euclidean", mining="hard",
          reduction="sum_over_pairs", normalize=False)`.
        - sentence-transformers: `BatchHardTripletLoss(margin=margin)`,
          `BatchHardSoftMarginTripletLoss`.

    Example:
        `tfa.TripletHardLoss(soft=True)(labels, embeddings)`
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
    r"""`tfa.losses.LiftedStructLoss`.

    $$
    \ell_{ap} = \frac{1}{2} \left[ \log\left( \sum_{k \in N_a} e^{m - d(a, k)}
    + \sum_{l \in N_p} e^{m - d(p, l)} \right) + d(a, p) \right]_+^2
    $$

    for every positive pair.

    Labels:
        (B,) class ids, integers of any size. Embeddings are not normalized.

    Args:
        margin: Margin, in units of Euclidean distance.
        name, **kwargs: As for `TripletSemiHardLoss`.

    Also known as:
        - Here: `LiftedStructureLoss(margin, normalize=False)`.

    Example:
        `tfa.LiftedStructLoss(1.0)(labels, embeddings)`
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
    r"""`tfa.losses.NpairsLoss`: cross entropy of (B, B) similarities.

    With the logits $z$ and the examples $S_i$ of the class of $i$, including
    itself,

    $$
    \ell_i = -\frac{1}{|S_i|} \sum_{j \in S_i} \log
    \frac{e^{z_{ij}}}{\sum_k e^{z_{ik}}} .
    $$

    Labels:
        (B,) class ids, integers. Instead of embeddings, the loss takes logits,
        (B, B): row i holds the similarities of example i to all examples,
        including itself.

    Args:
        name, **kwargs: As for `MetricLoss`.

    Also known as:
        `tfa.losses.NpairsLoss` of TensorFlow Addons. None of the other
        compared libraries takes logits; `NPairLoss` is the loss of embeddings.

    Example:
        `tfa.NpairsLoss()(labels, embeddings @ embeddings.T)`
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
    r"""`tfa.losses.ContrastiveLoss`, for given distances of pairs.

    For a pair with the label $y$ at the distance $d$,

    $$
    \ell = y \, d^2 + (1 - y) \left[ m - d \right]_+^2 .
    $$

    Labels:
        (B,) values of 1 for positive and 0 for negative pairs. Instead of
        embeddings, the loss takes distances, (B,).

    Args:
        margin: m, a distance.
        reduction, name: As for `keras.losses.Loss`.

    Also known as:
        - sentence-transformers: `ContrastiveLoss`, which compares embeddings
          and has half the value.

    Example:
        `tfa.ContrastiveLoss()(np.array([1.0, 0.0]), np.array([0.2, 0.7]))`
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
