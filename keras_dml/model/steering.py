"""Steering: the epoch, and the step within it, at which `fit` begins."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

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


@contextmanager
def steering(
    model: keras.Model,
    data: Prepared,
    is_share: bool,
    callbacks: Any,
    initial_epoch: int,
    is_shuffled: bool,
    class_weight: Mapping[int, float] | None,
    sample_weight: Any,
    **params: Any,
) -> Iterator[Any]:
    """Lets `fit` continue where an earlier one ended, if a callback may do so.

    The model passes the iterator of `fit` on before training begins.

    Args:
        model: The model to fit.
        data: The data to fit it to.
        is_share: See `replicated`.
        callbacks: Callbacks as given to `fit`.
        initial_epoch: See `fit`.
        is_shuffled: Whether the rows of arrays are shuffled.
        class_weight: See `fit`.
        sample_weight: See `fit`.
        **params: What `fit` tells callbacks.

    Yields:
        The callbacks, including the one that continues the training.
    """

    def rest(step: int) -> Any:
        """The batches of an epoch from a step on."""
        batches = Prepared(from_step(data.x, step))
        found = replicated(model, batches, is_share=is_share).x
        is_dataset = isinstance(found, tf.data.Dataset)
        return found if is_dataset else found.get_tf_dataset()

    steered: Resumption | FollowEpochs | None = None
    resume, callbacks = split_resume(callbacks)
    if resume is not None:
        is_ordered = data.y is not None and not is_shuffled
        batches = Batches(
            data.x, data.sampler, data.is_balanced, is_ordered, rest,
            data.y, class_weight, sample_weight,
        )  # fmt: skip
        steered = callbacks = Resumption(
            resume, callbacks, model, batches, initial_epoch, **params
        )
    elif data.sampler is not None:
        backup = backup_among(callbacks)
        steered = FollowEpochs(data.sampler, initial_epoch, backup, rest)
        callbacks = with_callback(steered, callbacks)
    model._steered = steered
    try:
        with steered if isinstance(steered, Resumption) else nullcontext():
            yield callbacks
    finally:
        model._steered = None
