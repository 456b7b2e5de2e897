"""The contract of mining, and the walk over triplets that it allows."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_dml.losses.pairs import Pairs
from keras_dml.losses.turns import next_turn, turns
from keras_dml.utils.registry import Registry
from keras_dml.utils.types import Config, Tensor

Seed: TypeAlias = int | keras.random.SeedGenerator | None


DRAWS = 8
GOLDEN_RATIO = 0.618034


Step: TypeAlias = Callable[
    [tuple[Tensor, ...], Tensor, Tensor], tuple[Tensor, ...]
]


@dataclass(frozen=True)
class Miner:
    """Base of all mining strategies: pairs → weights of pairs or triplets.

    A miner picks positives for every anchor, and for every anchor and
    positive the negatives that complete a triplet. Triplet losses walk
    over these triplets; pair losses take each triplet (a, p, n) as the two
    pairs (a, p) and (a, n), unless the strategy is about pairs.

    All of it is masks and weights over (B, R), never a list of indices:
    shapes stay static, and memory O(B·R).

    Attributes:
        is_random: Whether the strategy draws random numbers.
        one_positive: Whether `positives` marks at most one an anchor, so
            that there is nothing to loop over.
    """

    is_random = False

    @property
    def one_positive(self) -> bool:
        return False

    def positives(self, pairs: Pairs) -> Tensor:
        """(B, R) boolean: the positives to use."""
        return pairs.positive

    def prepare(self, pairs: Pairs) -> Any:
        """Whatever `negatives` needs again for every positive."""
        return pairs

    def negatives(
        self, prepared: Any, to_positive: Tensor, uniform: Tensor
    ) -> Tensor:
        """The negatives for one positive of every anchor.

        Args:
            prepared: What `prepare` returned.
            to_positive: (B, 1) distance of each anchor to its positive.
            uniform: (B, 1) uniform random numbers in [0, 1); zeros unless
                `is_random`.

        Returns:
            (B, R) boolean: the negatives to use.
        """
        raise NotImplementedError

    def pair_weights(
        self, pairs: Pairs, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        """How often each pair counts in a pair loss.

        Args:
            pairs: The pairs of the batch.
            seed: Seed of the strategies that draw.

        Returns:
            `(positive_weights, negative_weights)`: (B, R) each, float32,
            or boolean if no pair counts more than once; without gradient.
        """

        def step(
            weights: tuple[Tensor, ...], pick: Tensor, negatives: Tensor
        ) -> tuple[Tensor, ...]:
            negatives = ops.cast(negatives, "float32")
            count = ops.sum(negatives, axis=1, keepdims=True)
            return (
                ops.where(pick, count, weights[0]),
                weights[1] + negatives,
            )

        zeros = ops.zeros_like(pairs.distances)
        positive, negative = self.walk(pairs, step, (zeros, zeros), seed)
        return positive, negative

    def walk(
        self,
        pairs: Pairs,
        step: Step,
        initial: tuple[Tensor, ...],
        seed: Seed = None,
    ) -> tuple[Tensor, ...]:
        """Visits all triplets: the k-th positive of all anchors at once.

        As many steps as the anchor with the most positives has (K − 1 in
        a batch of P classes × K images), each O(B·R). No gradient passes.

        Args:
            pairs: The pairs of the batch.
            step: `(state, pick, negatives) -> state`, where `pick` is the
                (B, R) boolean mask with the k-th positive of each anchor,
                and `negatives` the mask of its negatives, boolean or of
                zeros and ones; both empty for anchors with fewer
                positives.
            initial: The first state.
            seed: Seed of the strategies that draw.

        Returns:
            The last state.
        """
        pairs = pairs._replace(distances=ops.stop_gradient(pairs.distances))
        has_negative = ops.any(pairs.negative, axis=1, keepdims=True)
        positive = ops.logical_and(self.positives(pairs), has_negative)
        prepared = self.prepare(pairs)
        draw = self._draws(ops.shape(pairs.distances)[0], seed)

        def visit(
            k: Any, state: tuple[Tensor, ...], pick: Tensor
        ) -> tuple[Tensor, ...]:
            to_positive = picked(pairs.distances, pick)
            negatives = self.negatives(prepared, to_positive, draw(k))
            exists = ops.any(pick, axis=1, keepdims=True)
            return step(state, pick, ops.logical_and(negatives, exists))

        if self.one_positive:
            return visit(1, initial, positive)

        scores = turns(positive)

        def body(k: Tensor, last: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
            best = next_turn(scores, last)
            pick = ops.logical_and(scores == best, best > 0)
            return (k + 1, best, *visit(k, state, pick))

        steps = ops.max(ops.sum(ops.cast(positive, "int32"), axis=1))
        _, _, *state = ops.while_loop(
            lambda k, *_: k <= steps,
            body,
            (
                ops.ones_like(steps),
                ops.full_like(scores[:, :1], float("inf")),
                *initial,
            ),
        )
        # At the end as well: a gradient that reached the loop would make
        # TensorFlow record its steps, which XLA cannot within a condition.
        return tuple(ops.stop_gradient(x) for x in state)

    def _draws(self, anchors: Any, seed: Seed) -> Callable[[Tensor], Tensor]:
        """k → (B, 1) uniform numbers for the k-th positives, k = 1, 2, …

        XLA's generator is slow on a CPU: more numbers than this would be
        the most expensive part of a loss. Beyond `DRAWS` positives of one
        anchor, its numbers come back rotated by the golden ratio: uniform
        still, and spread evenly, but no longer independent.
        """
        if not self.is_random:
            zeros = ops.zeros((anchors, 1), dtype="float32")
            return lambda k: zeros
        numbers = keras.random.uniform((anchors, DRAWS), seed=seed)

        def draw(k: Tensor) -> Tensor:
            column = ops.take(numbers, [(k - 1) % DRAWS], axis=1)
            turns = ops.cast((k - 1) // DRAWS, "float32")
            return (column + GOLDEN_RATIO * turns) % 1.0

        return draw

    def get_config(self) -> Config:
        return asdict(self)

    @classmethod
    def from_config(cls, config: Config) -> "Miner":
        return cls(**config)


MINING: Registry[Callable[..., Miner]] = Registry("mining")
"""Every strategy by the name that `mining=` takes."""


def picked(values: Tensor, pick: Tensor) -> Tensor:
    """(B, 1): the value each row has where `pick` has its one True."""
    return ops.sum(ops.where(pick, values, 0.0), axis=1, keepdims=True)


def one_of_each_row(scores: Tensor, mask: Tensor) -> Tensor:
    """(B, R) boolean: the first largest score of each row under a mask."""
    scores = ops.where(mask, scores, float("-inf"))
    largest = is_column(ops.argmax(scores, axis=1), scores)
    return ops.logical_and(largest, mask)


def is_column(index: Tensor, like: Tensor) -> Tensor:
    """(B, R) boolean of the shape of `like`: True at one column of a row."""
    columns = ops.arange(ops.shape(like)[1], dtype=index.dtype)
    return columns[None, :] == index[:, None]
