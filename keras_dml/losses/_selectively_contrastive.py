"""The selectively contrastive triplet loss."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.mining.selection import Selection
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs
from keras_dml.losses.triplets import TripletTerms, reduced_triplets
from keras_dml.utils.types import Positive, Tensor

_EASY_POSITIVE_HARD_NEGATIVE = Selection("easy", "hard")


@LOSSES.register("selectively_contrastive")
class SelectivelyContrastiveLoss(PairLoss):
    r"""Selectively contrastive triplets: hard negatives are only pushed away.

    For each triplet chosen by mining,

    $$
    \ell_{apn} = \begin{cases}
    \lambda \, s(a, n) & \text{if } s(a, n) > s(a, p) \\
    \log\left( 1 + e^{(s(a, n) - s(a, p)) / \tau} \right) & \text{otherwise.}
    \end{cases}
    $$

    With a triplet loss, very hard triplets pull all three examples together.
    Here, they only push the negative away, so the hardest negatives can be
    mined.

    Terms are triplets; each is multiplied by the product of the `pair_weights`
    of (a, p) and (a, n). Terms can be negative.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        temperature: τ.
        weight: λ.
        cutoff: In units of `distance`: negatives closer than this also count as
            hard. None: only negatives closer than the positive do.
        distance: As for `PairLoss`; cosine similarity in the paper. For a
            distance d, s is −d.
        mining: As for `PairLoss`; by default, as in the released code, the
            closest positive and the closest negative of each anchor.
        reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `temperature` or `weight` is not positive.

    Deviations:
        - The released code has `cutoff=0.8`, and skips positives with a
          similarity above 0.9999 as duplicates.

    Also known as:
        - pytorch-metric-learning: `SelectivelyContrastiveTripletLoss`, from its
          version 3 on; not compared.

    Example:
        `SelectivelyContrastiveLoss(temperature=0.1)(labels, embeddings)`

    Reference:
        Xuan et al., "Hard Negative Examples are Hard, but Useful", ECCV 2020,
        https://arxiv.org/abs/2007.12749.
    """

    needs_triplets = True

    def __init__(
        self,
        temperature: Positive = 0.1,
        weight: Positive = 1.0,
        cutoff: float | None = None,
        distance: DistanceLike = "cosine",
        mining: Any = _EASY_POSITIVE_HARD_NEGATIVE,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.temperature = temperature
        self.weight = weight
        self.cutoff = cutoff

    def values(self, pairs: Pairs) -> Tensor:
        def terms_of(positive: Tensor, distances: Tensor) -> TripletTerms:
            gap = (positive - distances) / self.temperature
            is_hard = gap > 0
            if self.cutoff is not None:
                is_near = distances < pairs.metric.orient(self.cutoff)
                is_hard = ops.logical_or(is_hard, is_near)
            value = ops.where(
                is_hard, -self.weight * distances, ops.softplus(gap)
            )
            pull = ops.where(is_hard, 0.0, ops.sigmoid(gap) / self.temperature)
            push = ops.where(is_hard, -self.weight, -pull)
            return TripletTerms(value, pull, push, value > 0)

        return reduced_triplets(self, pairs, terms_of)
