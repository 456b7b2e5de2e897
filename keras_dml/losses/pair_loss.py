"""PairLoss: base of the losses on mined pairs and triplets."""

from typing import Any

import keras

from keras_dml.losses.base import MetricLoss
from keras_dml.losses.mining import get as get_miner
from keras_dml.utils.types import Config


class PairLoss(MetricLoss):
    """Base of the losses that take `mining`.

    Args:
        mining: A name in `keras_dml.losses.mining.MINING`, a `Miner`, or
            the config of one.
        seed: Seed of mining that draws. Two losses made with one seed draw
            the same, as long as both are compiled by XLA or neither is:
            XLA has another generator. None draws a seed from Keras'
            global one.
        **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `mining` is unknown.
    """

    def __init__(
        self,
        mining: Any,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mining = mining
        self.seed = seed
        self.miner = get_miner(mining)
        self.seed_generator = (
            keras.random.SeedGenerator(seed) if self.miner.is_random else None
        )

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        super().build(owner, embedding_dim)
        if self.seed_generator is not None:
            # Keras finds the state of the generator through the layer, as
            # it must where training is stateless (JAX).
            setattr(owner, f"{self.name}_seed_generator", self.seed_generator)

    def arguments(self) -> Config:
        return {
            **super().arguments(),
            "mining": self.miner,
            "seed": self.seed_generator,
        }
