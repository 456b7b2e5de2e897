"""Supervised contrastive loss."""

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


def sup_con(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    pair_weights: PairWeights | None = None,
    *,
    temperature: float = 0.1,
    distance: str = "cosine",
    mining: Any = "all",
    seed: Seed = None,
    reduction: str = "mean",
) -> Tensor:
    """Supervised contrastive loss, (B,); see `SupConLoss`."""
    pairs = compare(
        labels, embeddings, ref_labels, ref_embeddings, distance, pair_weights
    )
    positive, negative = get_miner(mining).pair_weights(pairs, seed)
    logits = -pairs.distances / temperature
    used = [ops.cast(counts, "bool") for counts in (positive, negative)]
    everything = ops.logical_or(*used)
    positive = ops.cast(positive, "float32")
    count = ops.sum(positive, axis=1)
    divisor = ops.where(count > 0, count, 1.0)
    if pair_weights is None:
        log_total = masked_logsumexp(logits, everything)[:, 0]
    else:
        weights = ops.where(used[0], *pairs.weights)
        log_total = masked_logsumexp(logits, everything, weights=weights)[:, 0]
        positive *= ops.where(used[0], weights, 0.0)
        log_total *= ops.sum(positive, axis=1) / divisor
    pull = ops.sum(ops.where(used[0], positive * logits, 0.0), axis=1)
    terms = log_total - pull / divisor
    return reduce_terms(sum_terms(terms, count > 0), reduction)


@LOSSES.register("sup_con", "each positive against all others, by a softmax")
@register
class SupConLoss(PairLoss):
    """Supervised contrastive loss, the sum over positives outside the log.

    −1/|P(a)| Σ_p log(exp(s(a, p)/τ) / Σ_k exp(s(a, k)/τ)), k over all
    other examples, positives included. Terms are the anchors that have a
    positive. `pair_weights` multiply the part of each p, and the
    exponential of each k.

    Args:
        temperature: τ.
        distance: A name in `keras_dml.losses.distances.DISTANCES`.
        mining: As for `PairLoss`.
        reduction: As for `MetricLoss`.
        **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Reference:
        Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, Eq. 2,
        https://arxiv.org/abs/2004.11362.
    """

    function = staticmethod(sup_con)

    def __init__(
        self,
        temperature: float = 0.1,
        distance: str = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(mining, reduction=reduction, **kwargs)
        check_positive("SupConLoss", "temperature", temperature)
        self.distance = distances.get(distance).name
        self.temperature = temperature
