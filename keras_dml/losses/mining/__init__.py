"""Mining: which pairs and triplets of a batch a loss looks at."""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras

from keras_dml.losses.mining.distance_weighted import DistanceWeighted
from keras_dml.losses.mining.miner import Miner, Seed
from keras_dml.losses.mining.multi_similarity import MultiSimilarity
from keras_dml.losses.mining.selection import Selection
from keras_dml.utils.lookup import from_name

MINING: dict[str, Callable[..., Miner]] = {
    "all": Selection,
    "easy": partial(Selection, positive="easy", negative="semihard"),
    "semihard": partial(Selection, positive="all", negative="semihard"),
    "hard": partial(Selection, positive="hard", negative="hard"),
    "distance_weighted": DistanceWeighted,
    "multi_similarity": MultiSimilarity,
}
"""Every strategy by the name that `mining=` takes.

- "all": all pairs, or all triplets.
- "easy": the closest positive, with its semi-hard negative (Xuan et al.,
  "Improved Embeddings with Easy Positive Triplet Mining", WACV 2020). An
  easy negative too, the farthest one, would leave triplets that cost
  nothing; that is `Selection("easy", "easy")`.
- "semihard": every positive, with its semi-hard negative.
- "hard": the farthest positive and the closest negative ("batch-hard").
- "distance_weighted": every positive, with a negative drawn by distance.
- "multi_similarity": the pairs that are hard relative to the others.
"""

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
        return from_name("mining", identifier, MINING, _arguments)
    raise ValueError(
        "`mining` must be a name, a dict with a name, or a Miner. "
        f"Received: mining={identifier!r}. Use one of {tuple(MINING)}."
    )


def _arguments(name: str) -> list[str]:
    return list(MINING[name]().get_config())
