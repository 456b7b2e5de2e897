"""Embedding a set with several workers, each of which embeds a share."""

import keras
import numpy as np
import tensorflow as tf

from keras_dml.data import Examples
from keras_dml.distribution.workers import rows_of_all, this_worker
from keras_dml.embedding._embed import embed
from keras_dml.utils.types import FloatArray


def embed_shares(
    model: keras.Model,
    examples: Examples,
    batch_size: int,
    strategy: tf.distribute.Strategy,
) -> FloatArray:
    """Embeds all examples; all workers must call it.

    Args:
        model: As for `embed`.
        examples: The same set on every worker; each one reads its share.
        batch_size: Number of examples to embed at a time.
        strategy: The strategy of the workers.

    Returns:
        (N, D), bit-identical on all workers.

    Raises:
        ValueError: If there are more workers than examples.
    """
    worker = this_worker(strategy)
    if worker.count == 1:
        return embed(model, examples, batch_size)
    if len(examples) < worker.count:
        raise ValueError(
            "There must be at least as many examples as workers. Received: "
            f"{worker.count} workers and {examples!r}. Use fewer --workers."
        )
    shares = np.array_split(np.arange(len(examples)), worker.count)
    own = embed(model, examples.select(shares[worker.number]), batch_size)
    return rows_of_all(own, strategy)
