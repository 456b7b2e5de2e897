"""Mining by rank: all, easy, semi-hard and hard examples."""

from dataclasses import dataclass

from keras import ops

from keras_dml.arguments import check_choice
from keras_dml.losses.mining.miner import Miner, Seed, one_of_each_row
from keras_dml.losses.pairs import Pairs
from keras_dml.serialization import register
from keras_dml.types import Tensor

POSITIVES = ("all", "easy", "hard")
NEGATIVES = ("all", "easy", "semihard", "hard")


@register
@dataclass(frozen=True)
class Selection(Miner):
    """Picks positives and negatives of an anchor by their distance.

    Args:
        positive: Which positives of an anchor to use. "all"; "easy": the
            closest one (Xuan et al., WACV 2020); "hard": the farthest one
            (Hermans et al., 2017).
        negative: Which negatives to use with each positive. "all";
            "easy": the farthest one; "semihard": the closest one of those
            farther away than the positive, or the farthest of all if there
            is none (Schroff et al., FaceNet, CVPR 2015, as TensorFlow
            Addons fills it in); "hard": the closest one.

    Raises:
        ValueError: If a strategy is unknown.
    """

    positive: str = "all"
    negative: str = "all"

    def __post_init__(self) -> None:
        check_choice("Selection", "positive", self.positive, POSITIVES)
        check_choice("Selection", "negative", self.negative, NEGATIVES)

    def positives(self, pairs: Pairs) -> Tensor:
        if self.positive == "all":
            return pairs.positive
        sign = 1.0 if self.positive == "hard" else -1.0
        return one_of_each_row(sign * pairs.distances, pairs.positive)

    def negatives(
        self, prepared: Pairs, to_positive: Tensor, uniform: Tensor
    ) -> Tensor:
        distances, negative = prepared.distances, prepared.negative
        if self.negative == "all":
            chosen = negative
        elif self.negative == "hard":
            chosen = one_of_each_row(-distances, negative)
        elif self.negative == "easy":
            chosen = one_of_each_row(distances, negative)
        else:
            chosen = _semihard(distances, negative, to_positive)
        return ops.cast(chosen, "float32")

    def pair_weights(
        self, pairs: Pairs, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        """All pairs once if everything is used, else those of triplets."""
        if self.positive == self.negative == "all":
            positive = ops.cast(pairs.positive, "float32")
            return positive, ops.cast(pairs.negative, "float32")
        return super().pair_weights(pairs, seed)


def _semihard(
    distances: Tensor, negative: Tensor, to_positive: Tensor
) -> Tensor:
    farther = ops.logical_and(negative, distances > to_positive)
    any_farther = ops.any(farther, axis=1, keepdims=True)
    return one_of_each_row(
        ops.where(any_farther, -distances, distances),
        ops.where(any_farther, farther, negative),
    )
