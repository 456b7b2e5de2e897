"""Triplet loss."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs
from keras_dml.losses.triplets import TripletTerms, reduced_triplets
from keras_dml.utils.types import Tensor


@LOSSES.register("triplet")
class TripletLoss(PairLoss):
    """Triplet loss: the positive closer than the negative, by a margin.

    [d(a, p) − d(a, n) + m]₊, or softplus of the same with `soft_margin`.
    The forms in use:

    - FaceNet: the defaults, squared distance and semi-hard negatives.
    - batch-hard (Hermans et al.): `distance="euclidean"`,
      `mining="hard"`, and with `soft_margin=True`, `margin=0`.
    - batch-all: `mining="all"`, `reduction="mean_nonzero"`.

    Terms are triplets; each is multiplied by the product of the
    `pair_weights` of (a, p) and (a, n).

    Args:
        margin: m, in units of `distance`.
        soft_margin: Whether log(1 + exp(·)) replaces the hinge.
        distance, mining, reduction, **kwargs: As for `PairLoss`.

    Requirements:
        At least two examples of a class and at least two classes.

    Time is O(B·P·R) and memory O(B·R), with P the most positives that an
    anchor has: no list of triplets is ever made.

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
