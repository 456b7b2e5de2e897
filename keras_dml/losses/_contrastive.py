"""Contrastive loss."""

from typing import Any

from keras import ops

from keras_dml.losses import distances
from keras_dml.losses.base import LOSSES
from keras_dml.losses.mining import Seed
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import PairWeights, compare
from keras_dml.losses.reductions import reduce_terms, sum_terms
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


def contrastive(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    pair_weights: PairWeights | None = None,
    *,
    positive_margin: float = 0.0,
    negative_margin: float = 1.0,
    power: int = 1,
    distance: str = "squared",
    mining: Any = "all",
    seed: Seed = None,
    reduction: str = "mean_nonzero",
) -> Tensor:
    """Contrastive loss of every example, (B,); see `ContrastiveLoss`."""
    pairs = compare(
        labels, embeddings, ref_labels, ref_embeddings, distance, pair_weights
    )
    counts = get_miner(mining).pair_weights(pairs, seed)
    orient = pairs.metric.orient
    excess = ops.relu(pairs.distances - orient(positive_margin))
    lack = ops.relu(orient(negative_margin) - pairs.distances)
    positive, negative = (
        reduce_terms(
            sum_terms(_powered(terms, power), count, weight), reduction
        )
        for terms, count, weight in zip(
            (excess, lack), counts, pairs.weights, strict=True
        )
    )
    return positive + negative


def _powered(terms: Tensor, power: int) -> Tensor:
    # The general power, and above all its gradient, is slow.
    return terms if power == 1 else terms**power


@LOSSES.register(
    "contrastive", "positive pairs close, negative pairs beyond a margin"
)
@register
class ContrastiveLoss(PairLoss):
    """Contrastive loss: positives close, negatives beyond a margin.

    [d − m₊]₊ for positive and [m₋ − d]₊ for negative pairs. The forms in
    use:

    - squared: the defaults, averaged over the pairs that still cost.
    - ABE, Eq. 10: `reduction="sum_over_pairs"`. Sum over all ordered
      pairs, divided by B.
    - plain (attentive grouping, Eq. 1): `distance="euclidean"`,
      `reduction="mean"`.
    - Hadsell et al., twice theirs: `distance="euclidean"`, `power=2`.
    - two margins: `positive_margin` > 0.

    Terms are pairs, which `pair_weights` multiply; "mean" and
    "mean_nonzero" average positive and negative pairs separately, and add
    the two.

    Args:
        positive_margin: m₊, in units of `distance`: positives closer than
            this cost nothing.
        negative_margin: m₋, in units of `distance`: negatives farther than
            this cost nothing.
        power: 1, or 2 to square the hinges.
        distance: A name in `keras_dml.losses.distances.DISTANCES`. With a
            similarity the margins are similarities, and both inequalities
            turn round.
        mining: As for `PairLoss`.
        reduction: As for `MetricLoss`.
        **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `power` is neither 1 nor 2.

    Reference:
        Hadsell et al., "Dimensionality Reduction by Learning an Invariant
        Mapping", CVPR 2006; Kim et al., "Attention-based Ensemble for Deep
        Metric Learning", ECCV 2018, Eq. 10.
    """

    function = staticmethod(contrastive)

    def __init__(
        self,
        positive_margin: float = 0.0,
        negative_margin: float = 1.0,
        power: int = 1,
        distance: str = "squared",
        mining: Any = "all",
        reduction: str = "mean_nonzero",
        **kwargs: Any,
    ) -> None:
        super().__init__(mining, reduction=reduction, **kwargs)
        self.distance = distances.get(distance).name
        if power not in (1, 2):
            raise ValueError(
                "`power` of ContrastiveLoss must be 1 or 2. "
                f"Received: power={power}."
            )
        self.positive_margin = positive_margin
        self.negative_margin = negative_margin
        self.power = power
