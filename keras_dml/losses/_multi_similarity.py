"""Multi-similarity loss."""

from typing import Any

from keras import ops

from keras_dml.losses import distances
from keras_dml.losses.base import LOSSES
from keras_dml.losses.mining import Seed
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import PairWeights, compare
from keras_dml.losses.reductions import (
    masked_logsumexp,
    reduce_terms,
    sum_terms,
)
from keras_dml.utils.arguments import check_positive
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


def multi_similarity(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    pair_weights: PairWeights | None = None,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    threshold: float = 0.5,
    distance: str = "cosine",
    mining: Any = "multi_similarity",
    seed: Seed = None,
    reduction: str = "mean",
) -> Tensor:
    """Multi-similarity loss, (B,); see `MultiSimilarityLoss`."""
    pairs = compare(
        labels, embeddings, ref_labels, ref_embeddings, distance, pair_weights
    )
    positive, negative = (
        ops.cast(counts, "bool")
        for counts in get_miner(mining).pair_weights(pairs, seed)
    )
    excess = pairs.distances - pairs.metric.orient(threshold)
    pull, push = (
        masked_logsumexp(exponents, used, add_one=True, weights=weights)
        for exponents, used, weights in zip(
            (alpha * excess, -beta * excess),
            (positive, negative),
            pairs.weights,
            strict=True,
        )
    )
    terms = (pull / alpha + push / beta)[:, 0]
    return reduce_terms(sum_terms(terms, ops.ones_like(terms)), reduction)


@LOSSES.register(
    "multi_similarity",
    "the hard pairs of an anchor, weighted by their similarities",
)
@register
class MultiSimilarityLoss(PairLoss):
    """Multi-similarity loss, with its own pair mining.

    (1/α) log(1 + Σ₊ exp(−α(s − λ))) + (1/β) log(1 + Σ₋ exp(β(s − λ))),
    the sums over the positives and the negatives that mining keeps.

    Terms are anchors, all B of them ("mean" is the paper's 1/m Σ);
    `pair_weights` multiply each pair's exponential.

    Args:
        alpha: Scale α of the positives.
        beta: Scale β of the negatives.
        threshold: λ, the similarity between close and far.
        distance: A name in `keras_dml.losses.distances.DISTANCES`; the
            paper's is cosine similarity.
        mining: As for `PairLoss`; a pair counts once, however often mining
            picks it. "all" leaves mining out.
        reduction: As for `MetricLoss`.
        **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `alpha` or `beta` is not positive.

    Deviations:
        - λ is 0.5, as in the authors' released code; the paper prints 1,
          a similarity that no pair can exceed.

    Reference:
        Wang et al., "Multi-Similarity Loss with General Pair Weighting for Deep
        Metric Learning", CVPR 2019, Eq. 15, https://arxiv.org/abs/1904.06627.
    """

    function = staticmethod(multi_similarity)

    def __init__(
        self,
        alpha: float = 2.0,
        beta: float = 50.0,
        threshold: float = 0.5,
        distance: str = "cosine",
        mining: Any = "multi_similarity",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(mining, reduction=reduction, **kwargs)
        self.distance = distances.get(distance).name
        check_positive("MultiSimilarityLoss", "alpha", alpha)
        check_positive("MultiSimilarityLoss", "beta", beta)
        self.alpha = alpha
        self.beta = beta
        self.threshold = threshold
