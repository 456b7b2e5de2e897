"""Waiting: nothing of a step happens before its batch is there."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def waiting(step: Callable[..., Any]) -> Callable[..., Any]:
    """A train or test step all of whose operations wait for the batch.

    Of data of unknown length Keras asks for one batch too many. TensorFlow
    then still runs what needs nothing of it: it would count an update, and
    the examples of a batch in the means that are logged, and draw from
    random generators.
    """

    @functools.wraps(step)
    def after_batch(self: Any, data: Any) -> Any:
        batch = tf.nest.flatten(data, expand_composites=True)
        with tf.control_dependencies([x for x in batch if x is not None]):
            return step(self, data)

    return after_batch
