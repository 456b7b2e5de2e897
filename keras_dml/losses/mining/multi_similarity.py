"""Multi-similarity mining."""

from dataclasses import dataclass

from keras import ops

from keras_dml.losses.mining.miner import MINING, Miner, Seed
from keras_dml.losses.pairs import Pairs
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


@MINING.register(
    "multi_similarity",
    "the pairs that are hard relative to the anchor's others",
)
@register
@dataclass(frozen=True)
class MultiSimilarity(Miner):
    """The pairs that are hard relative to the anchor's other pairs.

    A negative is kept if it is closer than the farthest positive plus
    `epsilon`, a positive if it is farther than the closest negative minus
    `epsilon`. An anchor lacking positives or negatives keeps nothing.

    Args:
        epsilon: Slack ε, in units of the loss's distance.

    Reference:
        Wang et al., "Multi-Similarity Loss with General Pair Weighting for Deep
        Metric Learning", CVPR 2019, Eq. 11 and 13, ε = 0.1,
        https://arxiv.org/abs/1904.06627.
    """

    epsilon: float = 0.1

    def keep(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Boolean (B, R) masks of the positives and negatives kept."""
        distances, positive, negative = pairs[:3]
        infinity = float("inf")
        farthest = ops.max(
            ops.where(positive, distances, -infinity), axis=1, keepdims=True
        )
        closest = ops.min(
            ops.where(negative, distances, infinity), axis=1, keepdims=True
        )
        hard_positive = distances > closest - self.epsilon
        hard_negative = distances < farthest + self.epsilon
        return (
            ops.logical_and(positive, hard_positive),
            ops.logical_and(negative, hard_negative),
        )

    def positives(self, pairs: Pairs) -> Tensor:
        return self.keep(pairs)[0]

    def prepare(self, pairs: Pairs) -> Tensor:
        return self.keep(pairs)[1]

    def negatives(
        self, prepared: Tensor, to_positive: Tensor, uniform: Tensor
    ) -> Tensor:
        return prepared

    def pair_weights(
        self, pairs: Pairs, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        return self.keep(pairs)
