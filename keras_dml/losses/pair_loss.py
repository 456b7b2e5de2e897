"""PairLoss: the base class of losses on mined pairs and triplets."""

from typing import Any

import keras
from keras import ops

from keras_dml.losses import distances
from keras_dml.losses.base import MetricLoss
from keras_dml.losses.mining import Seed
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.mining.miner import Body, State
from keras_dml.losses.pairs import Batch, Pairs
from keras_dml.utils.types import Tensor


class PairLoss(MetricLoss):
    """Base class of losses on pairs of examples, which can be mined.

    Subclasses implement `values`.

    Args:
        distance: A name in `keras_dml.losses.distances.DISTANCES`, or a
            function or object of your own; see `distances.get`.
        mining: A name in `keras_dml.losses.mining.MINING`, a `Miner`, or
            the config of one.
        reduction: As for `MetricLoss`.
        seed: Seed of random mining. Two losses with the same seed draw the same
            numbers, provided that both or neither are compiled by XLA, which
            has a different generator. None draws a seed from Keras' global one.
        **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `distance` or `mining` is unknown.
    """

    weights_pairs = True

    def __init__(
        self,
        distance: distances.DistanceLike,
        mining: Any = "all",
        reduction: str = "mean",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction, **kwargs)
        self.distance = distances.name_if_known(distance)
        self.mining = mining
        self.seed = seed
        self.miner = get_miner(mining)
        self.needs_triplets |= self.miner.needs_triplets
        self.seed_generator: Seed = None
        if self.miner.is_random:
            self.seed_generator = keras.random.SeedGenerator(seed)

    @property
    def needs_positives(self) -> bool:  # type: ignore[override]
        return self.miner.needs_positives

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        super().build(owner, embedding_dim)
        if self.seed_generator is not None:
            # Keras finds the state of the generator through the layer, as
            # it must where training is stateless (JAX).
            setattr(owner, f"{self.name}_seed_generator", self.seed_generator)

    def call(self, batch: Batch) -> Tensor:
        return self.values(batch.compare(self.distance))

    def values(self, pairs: Pairs) -> Tensor:
        """Computes the loss of every anchor, (B,); the mean is the loss."""
        raise NotImplementedError

    def mined(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Returns how often positive and negative pairs count, (B, R) each."""
        return self.miner.pair_weights(pairs, self.seed_generator)

    def for_each_positive(
        self, pairs: Pairs, body: Body, initial: State
    ) -> State:
        """`Miner.for_each_positive` with the miner and seed of the loss."""
        return self.miner.for_each_positive(
            pairs, body, initial, self.seed_generator
        )

    def mined_masks(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Returns masks of positive and negative pairs that count, (B, R)."""
        positive, negative = self.mined(pairs)
        return ops.cast(positive, "bool"), ops.cast(negative, "bool")

    def reduce_pairs(
        self, pairs: Pairs, pull: Tensor, push: Tensor, joint: bool = False
    ) -> Tensor:
        """Reduces the terms of mined positive and negative pairs to (B,).

        Both kinds are reduced separately and added, or, if `joint`, together.

        Args:
            pairs: The pairs of the batch.
            pull: (B, R) terms of positive pairs.
            push: (B, R) terms of negative pairs.
            joint: See above.
        """
        positive, negative = self.mined(pairs)
        positive_weights, negative_weights = pairs.weights
        if joint:
            weights = None
            if positive_weights is not None:
                weights = ops.concatenate(pairs.weights, axis=1)
            return self.reduce(
                ops.concatenate([pull, push], axis=1),
                ops.concatenate([positive, negative], axis=1),
                weights,
            )
        return self.reduce(pull, positive, positive_weights) + self.reduce(
            push, negative, negative_weights
        )
