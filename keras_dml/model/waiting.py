"""Waiting: no operation of a step runs before its batch has arrived."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def waiting(step: Callable[..., Any]) -> Callable[..., Any]:
    """A train or test step in which every operation waits for the batch.

    With data of unknown length, Keras requests one batch too many. TensorFlow
    then still runs the operations that do not depend on it: it would count an
    update, include the examples of a batch in the logged means, and advance
    random generators.
    """

    @functools.wraps(step)
    def after_batch(self: Any, data: Any) -> Any:
        batch = tf.nest.flatten(data, expand_composites=True)
        with tf.control_dependencies([x for x in batch if x is not None]):
            return step(self, data)

    return after_batch
