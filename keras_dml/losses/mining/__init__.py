"""Mining: which pairs and triplets of a batch a loss looks at."""

import inspect
from typing import Any

import keras

from keras_dml.losses.mining.distance_weighted import DistanceWeighted
from keras_dml.losses.mining.miner import MINING, Miner, Seed
from keras_dml.losses.mining.multi_similarity import MultiSimilarity
from keras_dml.losses.mining.selection import Selection
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


def get(identifier: Any) -> Miner:
    """The mining strategy that `identifier` stands for.

    Args:
        identifier: A `Miner`; a name in `MINING`; a dict with such a name
            and arguments, `{"name": "distance_weighted", "cutoff": 0.4}`;
            or a serialized `Miner`.

    Raises:
        ValueError: If there is no such strategy or argument.
    """
    if isinstance(identifier, Miner):
        return identifier
    if isinstance(identifier, str):
        identifier = {"name": identifier}
    if isinstance(identifier, dict) and "class_name" in identifier:
        identifier = keras.saving.deserialize_keras_object(identifier)
        return get(identifier)
    if isinstance(identifier, dict) and "name" in identifier:
        return MINING.make(
            identifier, lambda m: inspect.signature(m).parameters
        )
    raise ValueError(
        "`mining` must be a name, a dict with a name, or a Miner. "
        f"Received: mining={identifier!r}. Use one of {tuple(MINING)}."
    )
