"""Triplet loss."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.gradients import with_gradient
from keras_dml.losses.mining.visits import State, value_at
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs
from keras_dml.losses.reductions import Terms, reduce_terms
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
        fixed = ops.stop_gradient(pairs.distances)
        of_positives, of_negatives = pairs.weights

        def add(state: State, positive: Tensor, negatives: Tensor) -> State:
            total, count, nonzero, slopes = state
            negatives = ops.cast(negatives, "bool")
            gap = (value_at(fixed, positive) + self.margin) - fixed
            if self.soft_margin:
                term = ops.where(negatives, ops.softplus(gap), 0.0)
                slope = ops.where(negatives, ops.sigmoid(gap), 0.0)
                violated = negatives
            else:
                term = ops.relu(ops.where(negatives, gap, 0.0))
                violated = term > 0
                slope = ops.cast(violated, "float32")
            if of_positives is not None:
                weights = value_at(of_positives, positive) * of_negatives
                weights = ops.where(negatives, weights, 0.0)
                term, slope = weights * term, weights * slope
            to_positive = ops.sum(slope, axis=1, keepdims=True)
            return (
                total + ops.sum(term, axis=1),
                count + _count(negatives),
                nonzero + _count(violated),
                ops.where(positive, to_positive, slopes) - slope,
            )

        zeros = ops.zeros_like(fixed[:, 0])
        initial = (zeros, zeros, zeros, ops.zeros_like(fixed))
        *sums, slopes = self.for_each_positive(pairs, add, initial)
        terms = Terms(*sums)
        total = with_gradient(terms.total, slopes, pairs.distances)
        return reduce_terms(terms._replace(total=total), self.reduction)


def _count(mask: Tensor) -> Tensor:
    return ops.sum(ops.cast(mask, "float32"), axis=1)
