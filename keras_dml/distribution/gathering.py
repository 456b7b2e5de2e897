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


def overflowing_together(gradients: list[Any]) -> list[Any]:
    """Gradients that overflow on all replicas if they do on one of them.

    Keras's `LossScaleOptimizer` asks the first replica whether all are
    finite, as if they had been summed before.

    Args:
        gradients: Tensors, `tf.IndexedSlices` or None, of this replica.

    Returns:
        The same; NaN if any replica has one that is not finite.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return gradients
    are_finite = [
        tf.reduce_all(tf.math.is_finite(_values(x)))
        for x in gradients
        if x is not None
    ]
    odd = tf.cast(tf.logical_not(tf.reduce_all(are_finite)), tf.float32)
    is_odd = context.all_reduce("SUM", odd) > 0

    def marked(x: Any) -> Any:
        if x is None:
            return None
        nan = tf.constant(float("nan"), x.dtype)
        values = tf.where(is_odd, nan, _values(x))
        if isinstance(x, tf.IndexedSlices):
            return tf.IndexedSlices(values, x.indices, x.dense_shape)
        return values

    return [marked(x) for x in gradients]


def clipped_together(
    gradients: list[Any], optimizer: keras.Optimizer
) -> list[Any]:
    """Gradients whose sum over replicas is clipped as a single one's is.

    Keras clips what each replica has, before it sums. What this returns is
    each replica's share of the clipped sum, so small that Keras clips no more.

    Args:
        gradients: Tensors, `tf.IndexedSlices` or None, of this replica.
        optimizer: What will apply them.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return gradients
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not (inner.clipnorm or inner.global_clipnorm or inner.clipvalue):
        return gradients
    scale = 1.0 if inner is optimizer else optimizer.dynamic_scale
    sums = iter(
        context.all_reduce("SUM", [x for x in gradients if x is not None])
    )
    whole = [
        None if x is None else keras.ops.divide(next(sums), scale)
        for x in gradients
    ]
    share = scale / context.num_replicas_in_sync
    return [
        None if x is None else keras.ops.multiply(x, share)
        for x in inner._clip_gradients(whole)
    ]


def _values(x: Tensor | tf.IndexedSlices) -> Tensor:
    return x.values if isinstance(x, tf.IndexedSlices) else x
