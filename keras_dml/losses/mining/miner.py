"""Miner: the interface of mining strategies, and loops over marked pairs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_dml.losses.pairs import Pairs
from keras_dml.utils.serialization import Serializable, SerializableRegistry
from keras_dml.utils.types import Tensor

Seed: TypeAlias = int | keras.random.SeedGenerator | None
"""Seed of a draw: a number, a generator, or None for a new one each time."""

State: TypeAlias = tuple[Tensor, ...]

Body: TypeAlias = Callable[[State, Tensor, Tensor], State]
"""`(state, positive, negatives) -> state`; see `Miner.for_each_positive`."""

DRAWS = 8
GOLDEN_RATIO = 0.618034


@dataclass(frozen=True)
class Miner(Serializable):
    """Base class of mining strategies: pairs → weights of pairs or triplets.

    A miner chooses positives for every anchor, and, for every anchor and
    positive, the negatives that complete a triplet. Triplet losses iterate over
    these triplets; pair losses use each triplet (a, p, n) as the two pairs
    (a, p) and (a, n), unless the strategy chooses pairs directly.

    All choices are masks and weights of shape (B, R) rather than lists of
    indices, so shapes stay static, and memory is O(B·R).

    Your own strategy implements `positives` and `negatives`; one that chooses
    pairs directly overrides `pair_weights`.

    Example:
        Labels [0, 0, 0, 1], and the distances of anchor 0 to the four are
        0, 0.2, 0.9 and 0.6. "semihard" takes every positive, and with it
        the closest negative beyond it, or else the farthest:

            visit  positive of anchor 0  negatives   [d(a, p) − d(a, n) + 0.1]₊
            k = 1  [0, 1, 0, 0]  (0.2)   [0, 0, 0, 1]  0.2 − 0.6 + 0.1 → 0
            k = 2  [0, 0, 1, 0]  (0.9)   [0, 0, 0, 1]  0.9 − 0.6 + 0.1 → 0.4

        A triplet loss sums the last column over the visits. Anchors 1 and
        2 have their first and second positives visited at the same time;
        anchor 3 has no positive, and both of its masks are empty. For a
        loss on pairs the weights of anchor 0 are [0, 1, 1, 0] for
        positives and [0, 0, 0, 2] for negatives.

    Attributes:
        is_random: Whether the strategy draws random numbers.
        needs_positives: Whether it finds nothing in a batch in which no two
            examples have the same class.
        needs_triplets: Whether it finds nothing for an example without both
            a positive and a negative.
        one_positive: Whether `positives` marks at most one positive per anchor,
            so that no loop is needed.
    """

    is_random = False
    needs_positives = True
    needs_triplets = False

    @property
    def one_positive(self) -> bool:
        return False

    def positives(self, pairs: Pairs) -> Tensor:
        """Chooses the positives to use, (B, R) boolean."""
        return pairs.positive

    def prepare(self, pairs: Pairs) -> Any:
        """Computes what `negatives` needs for every positive, once."""
        return pairs

    def negatives(
        self, prepared: Any, to_positive: Tensor, uniform: Tensor
    ) -> Tensor:
        """Chooses the negatives for one positive of every anchor.

        Args:
            prepared: The result of `prepare`.
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
        """Computes how often each pair counts in a pair loss.

        Args:
            pairs: The pairs of the batch.
            seed: Seed of random strategies.

        Returns:
            `(positive_weights, negative_weights)`: (B, R) each, float32, or
            boolean if no pair counts more than once; without a gradient.
        """

        def count(state: State, positive: Tensor, negatives: Tensor) -> State:
            negatives = ops.cast(negatives, "float32")
            triplets = ops.sum(negatives, axis=1, keepdims=True)
            return (
                ops.where(positive, triplets, state[0]),
                state[1] + negatives,
            )

        zeros = ops.zeros_like(pairs.distances)
        positive, negative = self.for_each_positive(
            pairs, count, (zeros, zeros), seed
        )
        return positive, negative

    def for_each_positive(
        self,
        pairs: Pairs,
        body: Body,
        initial: State,
        seed: Seed = None,
    ) -> State:
        """Iterates over all triplets: the k-th positive of all anchors at once.

        The number of iterations is the largest number of positives of any
        anchor (K − 1 in a batch of P classes × K images); each takes O(B·R). No
        gradient passes.

        Args:
            pairs: The pairs of the batch.
            body: `(state, positive, negatives) -> state`, where `positive`
                is the (B, R) boolean mask with the k-th positive of each
                anchor, and `negatives` the mask of its negatives, boolean
                or of zeros and ones; both empty for anchors with fewer
                positives.
            initial: The first state.
            seed: Seed of random strategies.

        Returns:
            The last state.
        """
        # None of this changes from visit to visit.
        pairs = pairs._replace(distances=ops.stop_gradient(pairs.distances))
        has_negative = ops.any(pairs.negative, axis=1, keepdims=True)
        positives = ops.logical_and(self.positives(pairs), has_negative)
        prepared = self.prepare(pairs)
        draw = self._draws(ops.shape(pairs.distances)[0], seed)

        # The k-th positive of each anchor, and the negatives that go with it.
        def visit(k: Any, positive: Tensor, state: State) -> State:
            to_positive = value_at(pairs.distances, positive)
            negatives = self.negatives(prepared, to_positive, draw(k))
            exists = ops.any(positive, axis=1, keepdims=True)
            return body(state, positive, ops.logical_and(negatives, exists))

        if self.one_positive:
            return visit(1, positives, initial)
        state = for_each_true(
            positives,
            lambda k, score, positive, *state: visit(k, positive, state),
            initial,
        )
        # The end needs it as well: a gradient that reached the loop would make
        # TensorFlow record its visits, which XLA cannot within a condition.
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
            rounds = ops.cast((k - 1) // DRAWS, "float32")
            return (column + GOLDEN_RATIO * rounds) % 1.0

        return draw


MINING: SerializableRegistry[Miner] = SerializableRegistry("mining", Miner)
"""Every strategy by the name that `mining=` takes."""


def get(identifier: Any) -> Miner:
    """Returns a mining strategy by name or config; see `MINING.resolve`."""
    return MINING.resolve(identifier)


def one_of_each_row(scores: Tensor, mask: Tensor) -> Tensor:
    """(B, R) boolean: the first largest score of each row under a mask."""
    scores = ops.where(mask, scores, float("-inf"))
    largest = is_column(ops.argmax(scores, axis=1), scores)
    return ops.logical_and(largest, mask)


def is_column(index: Tensor, like: Tensor) -> Tensor:
    """(B, R) boolean of the shape of `like`: True at one column of a row."""
    columns = ops.arange(ops.shape(like)[1], dtype=index.dtype)
    return columns[None, :] == index[:, None]


def for_each_true(
    mask: Tensor, body: Callable[..., State], initial: State
) -> State:
    """Visits the first True entry of all rows at once, then the second, …

    There are as many visits as marks in the fullest row. A row

        mask    False  True  False  True
        score       0     3      0     1

    is visited at column 1, where the score is the largest, 3, then at
    column 3, whose score is the largest below 3. (A running count along
    the rows would take longer than the rest of a loss.)

    Args:
        mask: (B, R) boolean.
        body: `(k, score, marked, *state) -> state`, with k from 1, the
            (B, 1) scores of the entries, 0 in rows that have no k-th one,
            and the (B, R) mask with at most one entry a row; see
            `column_index` for its column.
        initial: The first state.

    Returns:
        The last state.
    """
    columns = ops.shape(mask)[1]
    to_the_end = ops.cast(columns, "float32") - ops.arange(
        columns, dtype="float32"
    )
    scores = ops.where(mask, to_the_end, 0.0)
    visits = ops.max(ops.sum(ops.cast(mask, "int32"), axis=1))

    def visit(k: Tensor, last: Tensor, *state: Tensor) -> State:
        remaining = ops.where(scores < last, scores, 0.0)
        score = ops.max(remaining, axis=1, keepdims=True)
        marked = ops.logical_and(scores == score, score > 0)
        return (k + 1, score, *body(k, score, marked, *state))

    before_all = ops.full_like(scores[:, :1], float("inf"))
    _, _, *state = ops.while_loop(
        lambda k, *_: k <= visits,
        visit,
        (ops.ones_like(visits), before_all, *initial),
    )
    return tuple(state)


def column_index(score: Tensor, mask: Tensor) -> Tensor:
    """(B,) int32: the column of a (B, 1) score; any where there is none."""
    columns = ops.shape(mask)[1]
    return ops.minimum(columns - ops.cast(score[:, 0], "int32"), columns - 1)


def value_at(values: Tensor, marked: Tensor) -> Tensor:
    """(B, 1): the value of each row where its one entry is marked, else 0."""
    return ops.sum(ops.where(marked, values, 0.0), axis=1, keepdims=True)


def gather_column(values: Tensor, column: Tensor) -> Tensor:
    """(B, 1): the value of each row, (B, R), in its column, (B,) int32."""
    rows, columns = ops.shape(values)[:2]
    indices = columns * ops.arange(rows, dtype="int32") + column
    return ops.take(ops.reshape(values, (-1,)), indices)[:, None]
