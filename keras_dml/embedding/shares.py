"""Embedding of a set by several workers, each of a share."""

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
    """Embeds all examples; all workers have to call it.

    Args:
        model: As for `embed`.
        examples: A set, the same on every worker, which reads its share.
        batch_size: Examples embedded at a time.
        strategy: What the workers belong to.

    Returns:
        (N, D), the same bits on every worker.

    Raises:
        ValueError: If there are more workers than examples.
    """
    worker = this_worker(strategy)
    if worker.count == 1:
        return embed(model, examples, batch_size)
    if len(examples) < worker.count:
        raise ValueError(
            "Workers must be no more than the examples that they embed. "
            f"Received: {worker.count} workers and {examples!r}. Use fewer "
            "--workers."
        )
    shares = np.array_split(np.arange(len(examples)), worker.count)
    own = embed(model, examples.select(shares[worker.number]), batch_size)
    return rows_of_all(own, strategy)
