"""Distance-weighted sampling."""

from dataclasses import dataclass
from typing import NamedTuple

from keras import ops

from keras_dml.losses.distances import log_inverse_density
from keras_dml.losses.mining.miner import MINING, Miner, is_column
from keras_dml.losses.pairs import Pairs
from keras_dml.utils.types import Tensor

BLOCK = 32


class _Blocks(NamedTuple):
    """Rows of probabilities in blocks of `BLOCK` columns.

    A draw sums along the blocks, and along the columns of one block: sums
    along whole rows would take most of the time.
    """

    negative: Tensor  # (B, R)
    columns: Tensor  # (B · blocks, BLOCK)
    upto: Tensor  # (B, blocks) sum of the blocks as far as each


@MINING.register("distance_weighted")
@dataclass(frozen=True)
class DistanceWeighted(Miner):
    r"""Every positive, with a negative drawn at random by its distance.

    In D dimensions, the probability of a negative at the Euclidean distance $d$
    is

    $$
    \propto \frac{1}{q(d)} , \qquad
    q(d) = d^{D - 2} \left( 1 - \frac{d^2}{4} \right)^{(D - 3) / 2} ,
    $$

    where q is the density of the distance between two random points on the unit
    sphere (see `distances.log_inverse_density`). This makes the distances of
    the drawn negatives uniform. Distances are first clamped to at least
    `cutoff`; negatives beyond `max_distance` are not drawn. Weights are
    computed in log space, relative to the largest in the row.

    An anchor that has no negative within `max_distance` draws uniformly
    from its negatives.

    Args:
        cutoff: Lower bound of distances, as a Euclidean distance.
        max_distance: Largest distance of a negative that can be drawn. With 2
            or more, there is no limit, as in DiVA, DCML and DGML; beyond √2,
            the weight 1/q rises again.

    Also known as:
        - pytorch-metric-learning: `DistanceWeightedMiner(cutoff,
          nonzero_loss_cutoff)`.

    Example:
        `MarginLoss(mining=DistanceWeighted(cutoff=0.3))`

    Deviations:
        - If all negatives of an anchor are too far away, it draws from its
          negatives; the original draws from the whole batch in this case,
          including positives.
        - Negatives are drawn with replacement, one for each positive of the
          anchor. The first eight of an anchor are independent; further ones are
          rotations of these with the same distribution.

    Reference:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017, Eq.
        3 and Sec. 3.2, https://arxiv.org/abs/1706.07567.
    """

    cutoff: float = 0.5
    max_distance: float = 1.4
    is_random = True
    needs_triplets = True

    def __post_init__(self) -> None:
        if not 0 < self.cutoff < self.max_distance:
            raise ValueError(
                "`cutoff` of DistanceWeighted must be between 0 and "
                f"`max_distance`. Received: cutoff={self.cutoff}, "
                f"max_distance={self.max_distance}."
            )

    def probabilities(self, pairs: Pairs) -> Tensor:
        """Computes the probability of each negative to be drawn, (B, R).

        Rows of anchors without a negative are 0.
        """
        distances = pairs.metric.unit_euclidean(pairs.distances)
        near = ops.logical_and(pairs.negative, distances <= self.max_distance)
        logits = log_inverse_density(
            ops.maximum(distances, self.cutoff), pairs.embedding_dim
        )
        any_near = ops.any(near, axis=1, keepdims=True)
        drawable = ops.where(any_near, near, pairs.negative)
        logits = ops.where(any_near, logits, 0.0)
        logits = ops.where(drawable, logits, float("-inf"))
        top = ops.max(logits, axis=1, keepdims=True)
        weights = ops.where(drawable, ops.exp(logits - top), 0.0)
        total = ops.sum(weights, axis=1, keepdims=True)
        return weights / ops.where(total > 0, total, 1.0)

    def prepare(self, pairs: Pairs) -> _Blocks:
        weights = self.probabilities(pairs)
        rows, columns = ops.shape(weights)[:2]
        zeros = ops.zeros((rows, -columns % BLOCK), dtype="float32")
        weights = ops.concatenate([weights, zeros], axis=1)
        columns = ops.reshape(weights, (-1, BLOCK))
        totals = ops.reshape(ops.sum(columns, axis=1), (rows, -1))
        return _Blocks(pairs.negative, columns, ops.cumsum(totals, axis=1))

    def negatives(
        self, prepared: _Blocks, to_positive: Tensor, uniform: Tensor
    ) -> Tensor:
        negative, columns, upto = prepared
        level = uniform * upto[:, -1:]
        block, rest = _invert(upto, level)
        first = ops.shape(upto)[1] * ops.arange(
            ops.shape(upto)[0], dtype="int32"
        )
        block_rows = first + block
        within = ops.cumsum(ops.take(columns, block_rows, axis=0), axis=1)
        column, _ = _invert(within, rest)
        draw = is_column(BLOCK * block + column, negative)
        return ops.logical_and(draw, negative)


def _invert(upto: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse transform sampling from cumulative weights.

    Args:
        upto: (B, N) cumulative weights.
        level: (B, 1) in [0, the last of them).

    Returns:
        `(index, rest)`: (B,) int32, the entry of each row in which the
        level lies, any in a row without weights, and (B, 1) how far inside
        it is.
    """
    # Rounding must not put it beyond the end, where nothing has a weight.
    level = ops.minimum(level, (1.0 - 1e-6) * upto[:, -1:])
    passed = upto <= level
    index = ops.sum(ops.cast(passed, "int32"), axis=1)
    index = ops.minimum(index, ops.shape(upto)[1] - 1)
    below = ops.max(ops.where(passed, upto, 0.0), axis=1, keepdims=True)
    return index, level - below
