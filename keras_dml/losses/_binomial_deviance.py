"""Binomial deviance loss."""

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


def binomial_deviance(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    pair_weights: PairWeights | None = None,
    *,
    alpha: float = 2.0,
    threshold: float = 0.5,
    positive_scale: float = 1.0,
    negative_scale: float = 25.0,
    distance: str = "cosine",
    mining: Any = "all",
    seed: Seed = None,
    reduction: str = "mean",
) -> Tensor:
    """Binomial deviance loss, (B,); see `BinomialDevianceLoss`."""
    pairs = compare(
        labels, embeddings, ref_labels, ref_embeddings, distance, pair_weights
    )
    counts = get_miner(mining).pair_weights(pairs, seed)
    excess = alpha * (pairs.distances - pairs.metric.orient(threshold))
    positive, negative = (
        reduce_terms(
            sum_terms(ops.softplus(scale * excess), count, weight), reduction
        )
        for scale, count, weight in zip(
            (positive_scale, -negative_scale),
            counts,
            pairs.weights,
            strict=True,
        )
    )
    return positive + negative


@LOSSES.register(
    "binomial_deviance", "a soft threshold between positive and negative pairs"
)
@register
class BinomialDevianceLoss(PairLoss):
    """Binomial deviance: a soft threshold between positives and negatives.

    log(1 + exp(−α β₊ (s − m))) for positive pairs,
    log(1 + exp(α β₋ (s − m))) for negative pairs.

    Terms are pairs, which `pair_weights` multiply; "mean" averages
    positive and negative pairs separately, and adds the two.

    Args:
        alpha: α.
        threshold: m, the similarity between close and far.
        positive_scale: β₊, the paper's β₁.
        negative_scale: β₋, the paper's β₀.
        distance: A name in `keras_dml.losses.distances.DISTANCES`; the
            papers use cosine similarity.
        mining: As for `PairLoss`.
        reduction: As for `MetricLoss`.
        **kwargs: As for `PairLoss`.

    Deviations:
        - Table 1 of the attentive grouping paper prints the 25 on the
          positive side (`positive_scale=25, negative_scale=1`); its
          released code has it on the negative side, as here, which
          balances the many negatives.

    Reference:
        Yi et al., "Deep Metric Learning for Person Re-Identification", ICPR
        2014; Xu et al., "Towards Improved and Interpretable Deep Metric
        Learning via Attentive Grouping", 2020, Eq. 2.
    """

    function = staticmethod(binomial_deviance)

    def __init__(
        self,
        alpha: float = 2.0,
        threshold: float = 0.5,
        positive_scale: float = 1.0,
        negative_scale: float = 25.0,
        distance: str = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(mining, reduction=reduction, **kwargs)
        self.distance = distances.get(distance).name
        self.alpha = alpha
        self.threshold = threshold
        self.positive_scale = positive_scale
        self.negative_scale = negative_scale
