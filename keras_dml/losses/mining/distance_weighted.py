"""Distance-weighted sampling."""

from dataclasses import dataclass
from typing import NamedTuple

from keras import ops

from keras_dml.losses.distances import log_inverse_density
from keras_dml.losses.mining.miner import Miner
from keras_dml.losses.pairs import Pairs
from keras_dml.serialization import register
from keras_dml.types import Tensor


class _Cumulative(NamedTuple):
    below: Tensor  # (B, R) sum of the weights left of each column
    upto: Tensor  # (B, R) the same with the column's own weight


@register
@dataclass(frozen=True)
class DistanceWeighted(Miner):
    """All positives, each with one negative drawn with probability ∝ 1/q.

    q(d) is the density of the distance between two random points on the
    unit sphere: log q(d) = (n − 2) log d + (n − 3)/2 · log(1 − d²/4), n
    the dimension of the embeddings. Drawing ∝ 1/q makes the distances of
    the drawn negatives uniform. Distances are clamped to at least
    `cutoff` first; negatives beyond `max_distance` are not drawn. Weights
    are formed in log space, relative to the largest of the row.

    An anchor that has no negative within `max_distance` draws uniformly
    from its negatives.

    Args:
        cutoff: Smallest distance told apart, in Euclidean distance.
        max_distance: Largest distance of a negative that may be drawn.
            2 or more draws at any distance, as DiVA, DCML and DGML do;
            beyond √2 the weight 1/q rises again.

    Deviations:
        - An anchor whose negatives are all too far draws from its
          negatives; the original draws from the whole batch then,
          positives included.
        - Negatives are independent draws, with replacement, one for each
          positive of the anchor.

    Reference:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV
        2017, Eq. 3 and Sec. 3.2.
    """

    cutoff: float = 0.5
    max_distance: float = 1.4
    is_random = True

    def __post_init__(self) -> None:
        if not 0 < self.cutoff < self.max_distance:
            raise ValueError(
                "`cutoff` of DistanceWeighted must lie between 0 and "
                f"`max_distance`. Received: cutoff={self.cutoff}, "
                f"max_distance={self.max_distance}."
            )

    def probabilities(self, pairs: Pairs) -> Tensor:
        """(B, R): the probability with which each negative is drawn.

        All 0 in the rows of anchors without a negative.
        """
        distances = pairs.metric.unit_euclidean(pairs.distances)
        near = ops.logical_and(pairs.negative, distances <= self.max_distance)
        logits = log_inverse_density(
            ops.maximum(distances, self.cutoff), pairs.embedding_dim
        )
        any_near = ops.any(near, axis=1, keepdims=True)
        drawn = ops.where(any_near, near, pairs.negative)
        logits = ops.where(any_near, logits, 0.0)
        logits = ops.where(drawn, logits, float("-inf"))
        top = ops.max(logits, axis=1, keepdims=True)
        weights = ops.where(drawn, ops.exp(logits - top), 0.0)
        total = ops.sum(weights, axis=1, keepdims=True)
        return weights / ops.where(total > 0, total, 1.0)

    def prepare(self, pairs: Pairs) -> _Cumulative:
        upto = ops.cumsum(self.probabilities(pairs), axis=1)
        below = ops.pad(upto[:, :-1], ((0, 0), (1, 0)))
        return _Cumulative(below, upto)

    def negatives(
        self, prepared: _Cumulative, to_positive: Tensor, uniform: Tensor
    ) -> Tensor:
        # Inverse transform sampling. Rounding may leave the last sum a
        # little off 1; scaling by it keeps every draw inside.
        level = ops.minimum(uniform, 1.0 - 1e-6) * prepared.upto[:, -1:]
        drawn = ops.logical_and(prepared.below <= level, level < prepared.upto)
        return ops.cast(drawn, "float32")
