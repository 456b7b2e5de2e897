"""Triplet loss."""

from typing import Any

from keras import ops

from keras_dml.losses import distances
from keras_dml.losses.mining import Seed
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.mining.miner import picked
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import compare
from keras_dml.losses.reductions import Terms, reduce_terms
from keras_dml.serialization import register
from keras_dml.types import Tensor


def triplet(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    *,
    margin: float = 0.2,
    soft_margin: bool = False,
    distance: str = "squared",
    mining: Any = "semihard",
    seed: Seed = None,
    reduction: str = "mean",
) -> Tensor:
    """Triplet loss of every example, (B,); see `TripletLoss`."""
    pairs = compare(labels, embeddings, ref_labels, ref_embeddings, distance)
    fixed = ops.stop_gradient(pairs.distances)

    def step(
        state: tuple[Tensor, ...], pick: Tensor, negatives: Tensor
    ) -> tuple[Tensor, ...]:
        total, count, nonzero, slopes = state
        gap = picked(fixed, pick) - fixed + margin
        if soft_margin:
            term, slope = ops.softplus(gap), ops.sigmoid(gap) * negatives
        else:
            term = ops.relu(gap)
            slope = ops.where(gap > 0, negatives, 0.0)
        violated = ops.where(term > 0, negatives, 0.0)
        to_positive = ops.sum(slope, axis=1, keepdims=True)
        return (
            total + ops.sum(negatives * term, axis=1),
            count + ops.sum(negatives, axis=1),
            nonzero + ops.sum(violated, axis=1),
            slopes + ops.where(pick, to_positive, 0.0) - slope,
        )

    zeros = ops.zeros_like(fixed[:, 0])
    initial = (zeros, zeros, zeros, ops.zeros_like(fixed))
    *sums, slopes = get_miner(mining).walk(pairs, step, initial, seed)
    terms = Terms(*sums)
    # The walk passes no gradient; the slopes are the derivatives of
    # `total` by the distances. The added sum is 0 and has that gradient.
    change = pairs.distances - fixed
    total = terms.total + ops.sum(slopes * change, axis=1)
    return reduce_terms(terms._replace(total=total), reduction)


@register
class TripletLoss(PairLoss):
    """Triplet loss: the positive closer than the negative, by a margin.

    [d(a, p) − d(a, n) + m]₊, or softplus of the same with `soft_margin`.
    The forms in use:

    - FaceNet: the defaults, squared distance and semi-hard negatives.
    - batch-hard (Hermans et al.): `distance="euclidean"`,
      `mining="hard"`, and with `soft_margin=True`, `margin=0`.
    - batch-all: `mining="all"`, `reduction="mean_nonzero"`.

    Terms are triplets.

    Args:
        margin: m, in units of `distance`.
        soft_margin: Whether log(1 + exp(·)) replaces the hinge.
        distance: A name in `keras_dml.losses.distances.DISTANCES`.
        mining: As for `PairLoss`.
        reduction: As for `MetricLoss`.
        **kwargs: As for `PairLoss`.

    Requirements:
        At least two examples of a class and at least two classes.

    Time is O(B·P·R) and memory O(B·R), with P the most positives that an
    anchor has: no list of triplets is ever made.

    Reference:
        Schroff et al., "FaceNet", CVPR 2015, Eq. 1; Hermans et al., "In
        Defense of the Triplet Loss for Person Re-Identification", 2017.
    """

    function = staticmethod(triplet)

    def __init__(
        self,
        margin: float = 0.2,
        soft_margin: bool = False,
        distance: str = "squared",
        mining: Any = "semihard",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(mining, reduction=reduction, **kwargs)
        self.distance = distances.get(distance).name
        self.margin = margin
        self.soft_margin = soft_margin
