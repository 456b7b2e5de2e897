"""Triplets for the auxiliary tasks of DiVA."""

from dataclasses import dataclass
from typing import Any, Literal

import keras
from keras import ops

from keras_dml.losses.mining import DistanceWeighted, Miner, Seed
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.mining.miner import Body, one_of_each_row
from keras_dml.losses.mining.visits import State
from keras_dml.losses.pairs import Pairs
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


@dataclass(frozen=True)
class TripletDraw(Miner):
    """Base class of miners that draw one triplet for every anchor.

    The task determines the classes of the positive and the negative. These
    miners only work for batches that are compared with themselves.
    """

    is_random = True

    def draw(self, pairs: Pairs, seed: Seed) -> tuple[Tensor, Tensor]:
        """Two boolean (B, B) masks: the positive, and the negative.

        Each row of a mask has at most one true entry.
        """
        raise NotImplementedError

    def for_each_positive(
        self, pairs: Pairs, body: Body, initial: State, seed: Seed = None
    ) -> State:
        pairs = pairs._replace(distances=ops.stop_gradient(pairs.distances))
        positive, negative = self.draw(pairs, seed)
        complete = ops.logical_and(
            ops.any(positive, axis=1, keepdims=True),
            ops.any(negative, axis=1, keepdims=True),
        )
        positive = ops.logical_and(positive, complete)
        negative = ops.logical_and(negative, complete)
        return body(initial, positive, ops.cast(negative, "float32"))


@register
@dataclass(frozen=True)
class SharedClasses(TripletDraw):
    """Anchor, positive and negative of three different classes.

    DiVA's class-shared task learns from these triplets (Sec. 3.1). The
    negative is drawn by distance, with the probabilities of
    `DistanceWeighted`.

    Args:
        positive: How the positive is drawn: by "distance", like the negative,
            or "uniform".
        cutoff: See `DistanceWeighted`.
        max_distance: See `DistanceWeighted`.

    Requirements:
        At least three classes in a batch.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020, Eq. 3.
    """

    needs_positives = False  # Its positives are of other classes.

    positive: Literal["distance", "uniform"] = "distance"
    cutoff: float = 0.5
    max_distance: float = 1.4

    def draw(self, pairs: Pairs, seed: Seed) -> tuple[Tensor, Tensor]:
        by_distance = DistanceWeighted(self.cutoff, self.max_distance)
        if self.positive == "distance":
            weights = by_distance.probabilities(pairs)
        else:
            weights = ops.cast(pairs.negative, "float32")
        positive = _draw(weights, seed)
        # The third class differs from the positive's too.
        others = ops.take(pairs.negative, ops.argmax(positive, axis=1), axis=0)
        third = pairs._replace(negative=ops.logical_and(pairs.negative, others))
        return positive, _draw(by_distance.probabilities(third), seed)


@register
@dataclass(frozen=True)
class IntraClass(TripletDraw):
    """Anchor, positive and negative: three distinct images of one class.

    DiVA's intra-class task learns from these triplets (Eq. 4). Positive and
    negative are drawn uniformly.

    Rows are distinct; if a batch contains an image twice, `DivaObjective`
    excludes the second one, using `targets["index"]`.

    Requirements:
        At least three images of a class in a batch; a class with fewer
        contributes nothing.

    Deviations:
        - The released code draws with replacement, which in a batch with two
          images per class gives no triplet of distinct images.
    """

    def draw(self, pairs: Pairs, seed: Seed) -> tuple[Tensor, Tensor]:
        positive = _draw(ops.cast(pairs.positive, "float32"), seed)
        rest = ops.logical_and(pairs.positive, ops.logical_not(positive))
        return positive, _draw(ops.cast(rest, "float32"), seed)


@register
@dataclass(frozen=True)
class PermutedLabels(Miner):
    """Another strategy, with labels that are shuffled in every batch.

    This is the released form of DiVA's class-shared task.

    Args:
        mining: The strategy, see `losses.mining.get`.
    """

    mining: Any = "distance_weighted"
    is_random = True

    def pair_weights(
        self, pairs: Pairs, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        return get_miner(self.mining).pair_weights(_permute(pairs, seed), seed)

    def for_each_positive(
        self, pairs: Pairs, body: Body, initial: State, seed: Seed = None
    ) -> State:
        miner = get_miner(self.mining)
        pairs = _permute(pairs, seed)
        return miner.for_each_positive(pairs, body, initial, seed)


def _draw(weights: Tensor, seed: Seed) -> Tensor:
    """(B, R) boolean: one entry per row, drawn in proportion to its weight."""
    uniform = keras.random.uniform(ops.shape(weights), seed=seed)
    gumbel = -ops.log(-ops.log(ops.maximum(uniform, 1e-30)))
    # Entries without weight are masked; their logarithm is of no account.
    scores = ops.log(ops.where(weights > 0, weights, 1.0)) + gumbel
    return one_of_each_row(scores, weights > 0)


def _permute(pairs: Pairs, seed: Seed) -> Pairs:
    """The same pairs, related as if the labels had been shuffled."""
    batch = ops.shape(pairs.distances)[0]
    order = ops.argsort(keras.random.uniform((batch,), seed=seed))

    def shuffled(mask: Tensor) -> Tensor:
        return ops.take(ops.take(mask, order, axis=0), order, axis=1)

    return pairs._replace(
        positive=shuffled(pairs.positive), negative=shuffled(pairs.negative)
    )
