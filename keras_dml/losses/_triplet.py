"""Triplet loss."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs
from keras_dml.losses.triplets import TripletTerms, reduced_triplets
from keras_dml.utils.serialization import register_removed
from keras_dml.utils.types import Tensor


@LOSSES.register("triplet")
class TripletLoss(PairLoss):
    r"""Triplet loss: positives closer than negatives by a margin.

    For each triplet of an anchor $a$, a positive $p$ and a negative $n$ chosen
    by mining,

    $$
    \ell_{apn} = \left[ d(a, p) - d(a, n) + m \right]_+ ,
    $$

    or, with `soft_margin`, log(1 + exp(·)) instead of the hinge. Common
    variants:

    - FaceNet: the defaults, squared distance and semi-hard negatives.
    - batch-hard (Hermans et al.): `distance="euclidean"`, `mining="hard"`,
      and with `soft_margin=True`, `margin=0`.
    - batch-all: `mining="all"`, `reduction="mean_nonzero"`.

    Terms are triplets; each is multiplied by the product of the
    `pair_weights` of (a, p) and (a, n).

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        margin: m, in units of `distance`.
        soft_margin: Whether log(1 + exp(·)) replaces the hinge.
        distance, mining, reduction, **kwargs: As for `PairLoss`.

    Requirements:
        At least two classes, and at least two examples of one class.

    Time is O(B·P·R) and memory O(B·R), with P the largest number of positives
    of any anchor: no list of triplets is created.

    Also known as:
        - pytorch-metric-learning: `TripletMarginLoss(margin)` is
          `TripletLoss(margin, distance="euclidean", mining="all",
          reduction="mean_nonzero")`; with `BatchHardMiner()` it has
          `mining="hard"`.
        - TF Similarity: `TripletLoss(margin)` is `TripletLoss(margin,
          distance="cosine", mining=Selection("hard", "semihard"),
          reduction="sum_over_pairs")`; its margin of None is
          `soft_margin=True`.
        - TensorFlow Addons: `TripletSemiHardLoss(margin)` is
          `TripletLoss(margin, distance="euclidean", normalize=False)`;
          `TripletHardLoss(margin)` has also `mining="hard"` and
          `reduction="sum_over_pairs"`.
        - sentence-transformers: `BatchAllTripletLoss`, `BatchHardTripletLoss`,
          `BatchHardSoftMarginTripletLoss`, `BatchSemiHardTripletLoss`,
          `TripletLoss`.

    Example:
        `TripletLoss(margin=0.1, mining="hard")(labels, embeddings)`

    Reference:
        Schroff et al., "FaceNet: A Unified Embedding for Face Recognition and
        Clustering", CVPR 2015, Eq. 1, https://arxiv.org/abs/1503.03832; Hermans
        et al., "In Defense of the Triplet Loss for Person Re-Identification",
        2017.
    """

    needs_triplets = True

    def __init__(
        self,
        margin: float = 0.2,
        soft_margin: bool = False,
        distance: DistanceLike = "squared",
        mining: Any = "semihard",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.margin = margin
        self.soft_margin = soft_margin

    def values(self, pairs: Pairs) -> Tensor:
        def terms_of(positive: Tensor, distances: Tensor) -> TripletTerms:
            gap = (positive + self.margin) - distances
            if self.soft_margin:
                slope = ops.sigmoid(gap)
                # Each costs something, be it too little for a number.
                costs = ops.ones_like(gap, "bool")
                return TripletTerms(ops.softplus(gap), slope, -slope, costs)
            costs = gap > 0
            slope = ops.cast(costs, "float32")
            return TripletTerms(ops.relu(gap), slope, -slope, costs)

        return reduced_triplets(self, pairs, terms_of)


register_removed(
    "keras_dml.tfa>TripletSemiHardLoss",
    'TripletLoss(margin, distance="euclidean", normalize=False)',
)
register_removed(
    "keras_dml.tfa>TripletHardLoss",
    'TripletLoss(margin, distance="euclidean", mining="hard", '
    'reduction="sum_over_pairs", normalize=False), if soft with margin=0.0 '
    "and soft_margin=True",
)
