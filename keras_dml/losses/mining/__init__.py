"""Mining: the choice of pairs and triplets that a loss uses."""

from keras_dml.losses.mining.distance_weighted import DistanceWeighted
from keras_dml.losses.mining.miner import MINING, Miner, Seed, get
from keras_dml.losses.mining.selection import MultiSimilarity, Selection
from keras_dml.utils.registry import import_modules

import_modules(__name__)

__all__ = [
    "MINING",
    "DistanceWeighted",
    "Miner",
    "MultiSimilarity",
    "Seed",
    "Selection",
    "get",
]
