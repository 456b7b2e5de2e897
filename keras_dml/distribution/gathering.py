"""Gathering rows of all replicas on every replica, with gradients."""

from __future__ import annotations

from typing import Any

import keras

from keras_dml.distribution.strategies import replica_context
from keras_dml.distribution.workers import this_worker
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensor, Tensors


def gather_rows(structure: Any) -> Any:
    """Gathers the rows of all replicas, in the order of the replicas.

    With a single replica, they are returned unchanged. Gradients with respect
    to gathered rows are summed over the replicas. So if all replicas compute
    the same loss from them, divide it by the number of replicas. Replicas may
    differ in their number of rows alone.
    """
    context = replica_context()
    if context is None:
        return structure

    def gather(x: Tensor | None) -> Tensor | None:
        if x is None:
            return None
        x = tf.convert_to_tensor(x)
        # With one replica per worker, a strategy gathers nothing unless it
        # knows the device of the rows.
        devices = context.strategy.extended.worker_devices
        with tf.device(devices[0] if len(devices) == 1 else None):
            # NCCL does not support booleans.
            is_boolean = x.dtype == tf.bool
            values = tf.cast(x, tf.int32) if is_boolean else tf.identity(x)
        rows = tf.cast(context.all_gather(values, axis=0), x.dtype)
        # The total is unknown, because replicas may differ in their rows.
        rows.set_shape((None, *x.shape[1:]))
        return rows

    return keras.tree.map_structure(gather, structure)


def reducible_logs(logs: Tensors) -> Tensors:
    """The logs of a step in a form that Keras can average over the replicas.

    With several workers, it averages along the first axis, which scalars do not
    have.
    """
    if this_worker().count == 1:
        return logs
    return keras.tree.map_structure(lambda x: x[None], logs)


def share_overflow(gradients: list[Any]) -> list[Any]:
    """Makes gradients overflow on all replicas if they overflow on one.

    Keras's `LossScaleOptimizer` only checks the gradients of the first replica,
    as if they had already been summed. Here all are NaN if one is not finite.
    """
    context = replica_context()
    if context is None:
        return gradients
    are_finite = [
        tf.reduce_all(tf.math.is_finite(x)) for x in gradients if x is not None
    ]
    overflow = tf.cast(tf.logical_not(tf.reduce_all(are_finite)), tf.float32)
    is_overflow = context.all_reduce("SUM", overflow) > 0

    return [
        None
        if x is None
        else tf.where(is_overflow, tf.constant(float("nan"), x.dtype), x)
        for x in gradients
    ]


def clip_sum(gradients: list[Any], optimizer: keras.Optimizer) -> list[Any]:
    """Clips the sum of gradients over the replicas, as on a single replica.

    Keras clips the gradients of each replica before it sums them. This function
    returns each replica's share of the clipped sum, which is small enough that
    Keras does not clip it again.
    """
    context = replica_context()
    if context is None:
        return gradients
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not (inner.clipnorm or inner.global_clipnorm or inner.clipvalue):
        return gradients
    scale = 1.0 if inner is optimizer else optimizer.dynamic_scale
    sums = iter(
        context.all_reduce("SUM", [x for x in gradients if x is not None])
    )
    clipped = [
        None if x is None else keras.ops.divide(next(sums), scale)
        for x in gradients
    ]
    share = scale / context.num_replicas_in_sync
    return [
        None if x is None else keras.ops.multiply(x, share)
        for x in inner._clip_gradients(clipped)
    ]
