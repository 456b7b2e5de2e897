"""Gathering: rows of all replicas on each of them, with their gradient."""

from typing import Any

import keras
import tensorflow as tf

from keras_dml.distribution.workers import this_worker
from keras_dml.utils.types import Tensor, Tensors


def gathered(structure: Any) -> Any:
    """The rows of all replicas, in their order; on a single one as given.

    A gradient of what each replica computes from gathered rows is summed
    over the replicas: divide by their number what all of them compute alike.

    Args:
        structure: Tensors, (b, …), on each replica. They may have any number
            of rows, and agree in everything else.

    Returns:
        The same structure of tensors, (B, …), B the sum of all b.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return structure
    return keras.tree.map_structure(
        lambda x: None if x is None else _gathered(context, x), structure
    )


def _gathered(context: tf.distribute.ReplicaContext, x: Tensor) -> Tensor:
    x = tf.convert_to_tensor(x)
    # With one replica a worker, a strategy gathers nothing unless it is told
    # on which device the rows are.
    devices = context.strategy.extended.worker_devices
    with tf.device(devices[0] if len(devices) == 1 else None):
        # NCCL has no booleans.
        sent = tf.cast(x, tf.int32) if x.dtype == tf.bool else tf.identity(x)
    rows = tf.cast(context.all_gather(sent, axis=0), x.dtype)
    # Others may have another number of rows, so that the sum is not known.
    rows.set_shape((None, *x.shape[1:]))
    return rows


def reducible(logs: Tensors) -> Tensors:
    """Logs of a step as Keras reduces them over the replicas.

    Of several workers it takes the mean along the first axis, which scalars
    do not have.
    """
    if this_worker().count == 1:
        return logs
    return keras.tree.map_structure(lambda x: x[None], logs)
