"""Circle loss."""

from typing import Any

from keras import ops

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


def circle(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    pair_weights: PairWeights | None = None,
    *,
    margin: float = 0.4,
    gamma: float = 80.0,
    mining: Any = "all",
    seed: Seed = None,
    reduction: str = "mean",
) -> Tensor:
    """Circle loss of every example, (B,); see `CircleLoss`."""
    pairs = compare(
        labels, embeddings, ref_labels, ref_embeddings, "cosine", pair_weights
    )
    positive, negative = (
        ops.cast(counts, "bool")
        for counts in get_miner(mining).pair_weights(pairs, seed)
    )
    similarity = -pairs.distances
    fixed = ops.stop_gradient(similarity)
    pull = ops.relu(1.0 + margin - fixed) * (1.0 - margin - similarity)
    push = ops.relu(fixed + margin) * (similarity - margin)
    terms = ops.softplus(
        masked_logsumexp(gamma * pull, positive, weights=pairs.weights[0])
        + masked_logsumexp(gamma * push, negative, weights=pairs.weights[1])
    )[:, 0]
    has_both = ops.logical_and(
        ops.any(positive, axis=1), ops.any(negative, axis=1)
    )
    return reduce_terms(sum_terms(terms, has_both), reduction)


@LOSSES.register("circle", "each similarity paced by how far it has to go")
@register
class CircleLoss(PairLoss):
    """Circle loss for pairs: each similarity paced by how far it has to go.

    softplus(log Σ₊ exp(−γ α₊ (s − Δ₊)) + log Σ₋ exp(γ α₋ (s − Δ₋))) for
    each anchor, α₊ = [1 + m − s]₊, α₋ = [s + m]₊, Δ₊ = 1 − m, Δ₋ = m, in
    cosine similarities; no gradient passes α. Terms are the anchors that
    have positives and negatives; `pair_weights` multiply each pair's
    exponential.

    Args:
        margin: m, the radius of the decision boundary; the default is the
            paper's for fine-grained retrieval.
        gamma: Scale γ.
        mining: As for `PairLoss`.
        reduction: As for `MetricLoss`.
        **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `gamma` is not positive.

    Reference:
        Sun et al., "Circle Loss: A Unified Perspective of Pair Similarity
        Optimization", CVPR 2020, Eq. 4 to 8, https://arxiv.org/abs/2002.10857.
    """

    function = staticmethod(circle)

    def __init__(
        self,
        margin: float = 0.4,
        gamma: float = 80.0,
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(mining, reduction=reduction, **kwargs)
        check_positive("CircleLoss", "gamma", gamma)
        self.margin = margin
        self.gamma = gamma
