"""Lifted structure loss, original and generalized."""

from typing import Any

from keras import ops

from keras_dml.losses import distances
from keras_dml.losses.base import LOSSES
from keras_dml.losses.mining import Seed
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import PairWeights, compare
from keras_dml.losses.reductions import (
    Terms,
    masked_logsumexp,
    reduce_terms,
    sum_terms,
)
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


def lifted_structure(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    pair_weights: PairWeights | None = None,
    *,
    margin: float = 1.0,
    generalized: bool = False,
    distance: str = "euclidean",
    mining: Any = "all",
    seed: Seed = None,
    reduction: str = "mean",
) -> Tensor:
    """Lifted structure loss, (B,); see `LiftedStructureLoss`."""
    pairs = compare(
        labels, embeddings, ref_labels, ref_embeddings, distance, pair_weights
    )
    positive, negative = get_miner(mining).pair_weights(pairs, seed)
    form = _generalized if generalized else _original
    terms = form(pairs.distances, positive, negative, margin, *pairs.weights)
    return reduce_terms(terms, reduction)


def _original(
    distances: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float,
    of_positives: Tensor | None,
    of_negatives: Tensor | None,
) -> Terms:
    lack = margin - distances
    negative = ops.cast(negative, "bool")
    of_anchor, of_positive = (  # (B, 1), (1, R)
        masked_logsumexp(lack, negative, axis, weights=of_negatives)
        for axis in (1, 0)
    )
    # Not `ops.logaddexp`: where both are equal, its gradient goes to one.
    top = ops.stop_gradient(ops.maximum(of_anchor, of_positive))
    total = ops.exp(of_anchor - top) + ops.exp(of_positive - top)
    violation = ops.relu(top + ops.log(total) + distances)
    return sum_terms(0.5 * ops.square(violation), positive, of_positives)


def _generalized(
    distances: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float,
    of_positives: Tensor | None,
    of_negatives: Tensor | None,
) -> Terms:
    positive, negative = (
        ops.cast(counts, "bool") for counts in (positive, negative)
    )
    farthest = masked_logsumexp(distances, positive, weights=of_positives)
    closest = masked_logsumexp(
        margin - distances, negative, weights=of_negatives
    )
    has_both = ops.logical_and(
        ops.any(positive, axis=1), ops.any(negative, axis=1)
    )
    return sum_terms(ops.relu(farthest + closest)[:, 0], has_both)


@LOSSES.register(
    "lifted_structure",
    "each positive pair against all negatives of both its ends",
)
@register
class LiftedStructureLoss(PairLoss):
    """Lifted structure loss: each positive pair against all negatives.

    - original (Song et al., Eq. 4): J = log(Σ_k exp(m − d(a, k)) +
      Σ_l exp(m − d(p, l))) + d(a, p), k and l over the negatives of a and
      of p; terms are positive pairs, ½ [J]₊².
    - generalized (Hermans et al.): terms are anchors,
      [log Σ_p exp d(a, p) + log Σ_n exp(m − d(a, n))]₊.

    With references, the negatives of a positive p are the anchors of the
    batch that are negative to p. `pair_weights` multiply the terms of
    positive pairs (generalized: their exponentials) and the exponentials
    of negative pairs, those of p as they stand in its column.

    Args:
        margin: m, in units of `distance`.
        generalized: Which of the two forms.
        distance: A name in `keras_dml.losses.distances.DISTANCES`.
        mining: As for `PairLoss`.
        reduction: As for `MetricLoss`.
        **kwargs: As for `PairLoss`.

    Reference:
        Song et al., "Deep Metric Learning via Lifted Structured Feature
        Embedding", CVPR 2016, Eq. 4, https://arxiv.org/abs/1511.06452; Hermans
        et al., "In Defense of the Triplet Loss for Person Re-Identification",
        2017, Eq. 8.
    """

    function = staticmethod(lifted_structure)

    def __init__(
        self,
        margin: float = 1.0,
        generalized: bool = False,
        distance: str = "euclidean",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(mining, reduction=reduction, **kwargs)
        self.distance = distances.get(distance).name
        self.margin = margin
        self.generalized = generalized
