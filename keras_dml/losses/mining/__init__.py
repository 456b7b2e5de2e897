"""Mining: the choice of pairs and triplets that a loss uses.

Also known as:
    - pytorch-metric-learning: `miners`, the argument `mining` of a loss here;
      `TripletMarginMiner` and `PairMarginMiner` are `mining="all"`, or
      "semihard".
"""

from typing import TYPE_CHECKING

from keras_dml.losses.mining.distance_weighted import DistanceWeighted
from keras_dml.losses.mining.miner import MINING, Miner, Seed, get
from keras_dml.losses.mining.selection import MultiSimilarity, Selection
from keras_dml.utils.registry import attribute_hints, import_modules

import_modules(__name__)

if not TYPE_CHECKING:
    __getattr__ = attribute_hints(__name__)

__all__ = [
    "MINING",
    "DistanceWeighted",
    "Miner",
    "MultiSimilarity",
    "Seed",
    "Selection",
    "get",
]
