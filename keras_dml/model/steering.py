"""Steering: the epoch, and the step within it, that `fit` begins with."""

from typing import Any, TypeAlias

import keras
import tensorflow as tf

from keras_dml.data.planned import from_step
from keras_dml.model.replicas import replicated
from keras_dml.model.resuming import (
    FollowEpochs,
    backup_among,
    split_resume,
    with_callback,
)
from keras_dml.model.training_data import Prepared
from keras_dml.resuming.resumption import Batches, Resumption

Steered: TypeAlias = Resumption | FollowEpochs
"""What has a method `steer`, and takes the iterator of `fit`."""


def steering(
    model: keras.Model,
    data: Prepared,
    is_share: bool,
    callbacks: Any,
    initial_epoch: int,
    is_shuffled: bool,
    **params: Any,
) -> tuple[Steered | None, Any]:
    """What makes `fit` go on where an earlier one ended, if anything may.

    Args:
        model: What is fitted.
        data: What it is fitted to.
        is_share: As for `replicated`.
        callbacks: As `fit` takes them, and so is `initial_epoch`.
        initial_epoch: Likewise.
        is_shuffled: Whether the rows of arrays are.
        **params: What `fit` tells callbacks.

    Returns:
        That, and the callbacks with it among them.
    """

    def rest(step: int) -> Any:
        """The batches of an epoch from a step on."""
        batches = Prepared(from_step(data.x, step))
        found = replicated(model, batches, is_share=is_share).x
        is_dataset = isinstance(found, tf.data.Dataset)
        return found if is_dataset else found.get_tf_dataset()

    resume, callbacks = split_resume(callbacks)
    if resume is not None:
        is_ordered = data.y is not None and not is_shuffled
        batches = Batches(
            data.x, data.sampler, data.is_balanced, is_ordered, rest
        )
        resumption = Resumption(
            resume, callbacks, model, batches, initial_epoch, **params
        )
        return resumption, resumption
    if data.sampler is None:
        return None, callbacks
    backup = backup_among(callbacks)
    following = FollowEpochs(data.sampler, initial_epoch, backup, rest)
    return following, with_callback(following, callbacks)
