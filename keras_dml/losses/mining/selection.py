"""Mining by distance: all, easy, semi-hard, hard, multi-similarity."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from keras import ops

from keras_dml.losses.mining.miner import (
    MINING,
    Miner,
    Seed,
    is_column,
    one_of_each_row,
)
from keras_dml.losses.pairs import Pairs
from keras_dml.utils.registry import Paper
from keras_dml.utils.types import Tensor


@MINING.register("all", "all pairs, or all triplets")
@dataclass(frozen=True)
class Selection(Miner):
    """Chooses positives and negatives of an anchor by their distance.

    Args:
        positive: The positives of an anchor to use. "all"; "easy": the closest
            one (Xuan et al., WACV 2020); "hard": the farthest one (Hermans et
            al., 2017).
        negative: The negatives to use with each positive. "all"; "easy": the
            farthest one; "semihard": the closest of those farther away than the
            positive, or, if there are none, the farthest of all, as in
            TensorFlow Addons (Schroff et al., FaceNet, CVPR 2015); "hard": the
            closest one.

    Raises:
        ValueError: If a strategy is unknown.

    Also known as:
        - pytorch-metric-learning: `BatchEasyHardMiner(pos_strategy,
          neg_strategy)`, whose "semihard" drops an anchor without a farther
          negative; `BatchHardMiner()` is `mining="hard"`.
        - TF Similarity: `positive_mining_strategy` and
          `negative_mining_strategy` of its losses.

    Example:
        `TripletLoss(mining=Selection(positive="easy", negative="hard"))`
    """

    positive: Literal["all", "easy", "hard"] = "all"
    negative: Literal["all", "easy", "semihard", "hard"] = "all"

    @property
    def one_positive(self) -> bool:
        return self.positive != "all"

    @property
    def needs_triplets(self) -> bool:  # type: ignore[override]
        return (self.positive, self.negative) != ("all", "all")

    def positives(self, pairs: Pairs) -> Tensor:
        if self.positive == "all":
            return pairs.positive
        sign = 1.0 if self.positive == "hard" else -1.0
        return one_of_each_row(sign * pairs.distances, pairs.positive)

    def prepare(self, pairs: Pairs) -> Any:
        """What depends on the anchors only."""
        distances, negative = pairs.distances, pairs.negative
        if self.negative == "all":
            return negative
        if self.negative == "hard":
            return one_of_each_row(-distances, negative)
        if self.negative == "easy":
            return one_of_each_row(distances, negative)
        scores = ops.where(negative, -distances, float("-inf"))
        farthest = ops.argmin(
            ops.where(negative, -distances, float("inf")), axis=1
        )
        return scores, farthest

    def negatives(
        self, prepared: Any, to_positive: Tensor, uniform: Tensor
    ) -> Tensor:
        if self.negative != "semihard":
            return prepared
        scores, farthest = prepared
        scores = ops.where(scores < -to_positive, scores, float("-inf"))
        any_farther = ops.max(scores, axis=1) > float("-inf")
        chosen = ops.where(any_farther, ops.argmax(scores, axis=1), farthest)
        return is_column(chosen, scores)

    def pair_weights(
        self, pairs: Pairs, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        """All pairs once if everything is used, else those of triplets."""
        if self.positive == self.negative == "all":
            return pairs.positive, pairs.negative
        return super().pair_weights(pairs, seed)


# An easy negative too, the farthest one, would leave triplets that cost
# nothing; that is `Selection("easy", "easy")`.
MINING.register(
    "easy",
    "the closest positive, with its semi-hard negative",
    Paper(
        "Improved Embeddings with Easy Positive Triplet Mining",
        "Xuan et al.",
        "WACV 2020",
        "https://arxiv.org/abs/1904.04370",
    ),
)(partial(Selection, positive="easy", negative="semihard"))
MINING.register(
    "semihard",
    "every positive, with its semi-hard negative",
    Paper(
        "FaceNet: A Unified Embedding for Face Recognition and Clustering",
        "Schroff et al.",
        "CVPR 2015",
        "https://arxiv.org/abs/1503.03832",
    ),
)(partial(Selection, positive="all", negative="semihard"))
MINING.register(
    "hard",
    'the farthest positive and the closest negative ("batch-hard")',
    Paper(
        "In Defense of the Triplet Loss for Person Re-Identification",
        "Hermans et al.",
        "2017",
        "https://arxiv.org/abs/1703.07737",
    ),
)(partial(Selection, positive="hard", negative="hard"))


@MINING.register("multi_similarity")
@dataclass(frozen=True)
class MultiSimilarity(Miner):
    r"""Pairs that are hard relative to the other pairs of the anchor.

    For an anchor $a$ with positives $P$ and negatives $N$, it keeps

    $$
    \left\{ n \in N : d(a, n) < \max_{p \in P} d(a, p) + \epsilon \right\} ,
    \qquad
    \left\{ p \in P : d(a, p) > \min_{n \in N} d(a, n) - \epsilon \right\} .
    $$

    Nothing is kept for anchors without positives or without negatives.

    Args:
        epsilon: Slack ε, in units of the loss's distance.

    Also known as:
        - pytorch-metric-learning: `MultiSimilarityMiner(epsilon)`.
        - TF Similarity: `epsilon` of `MultiSimilarityLoss`.

    Example:
        `MultiSimilarityLoss(mining=MultiSimilarity(epsilon=0.2))`

    Reference:
        Wang et al., "Multi-Similarity Loss with General Pair Weighting for Deep
        Metric Learning", CVPR 2019, Eq. 11 and 13, ε = 0.1,
        https://arxiv.org/abs/1904.06627.
    """

    epsilon: float = 0.1

    needs_triplets = True

    def keep(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Computes (B, R) masks of the positives and negatives to keep."""
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
