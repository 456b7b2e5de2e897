"""The train and test steps of a `MetricModel` on TensorFlow."""

import functools
from collections.abc import Callable
from typing import Any

import keras

from keras_dml.distribution.gathering import gather_rows, reducible_logs
from keras_dml.distribution.strategies import average_statistics
from keras_dml.model.accumulation import embedding_of
from keras_dml.model.checks import targets_of
from keras_dml.model.replicas import gather_for_loss
from keras_dml.model.update import log_batch, loss_of, remember
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensors


def waiting(step: Callable[..., Any]) -> Callable[..., Any]:
    """Makes every operation of a train or test step wait for the batch.

    With data of unknown length, Keras requests one batch too many. TensorFlow
    would still run the operations that do not depend on that batch: it would
    count an update, count examples in the logged means, and advance random
    generators.
    """

    @functools.wraps(step)
    def after_batch(model: Any, data: Any) -> Any:
        batch = tf.nest.flatten(data, expand_composites=True)
        with tf.control_dependencies([x for x in batch if x is not None]):
            return step(model, data)

    return after_batch


@waiting
def train(model: Any, data: Any) -> Tensors:
    """Updates the model by a batch; returns the logs."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    targets = model.objective.completed(x, targets_of(y))
    embedding = embedding_of(model, x)
    with tf.GradientTape() as tape:
        outputs, targets, sample_weight = gather_for_loss(
            model, embedding.outputs(tape), targets, sample_weight
        )
        terms = model.objective(outputs, targets)
        loss = loss_of(model, terms, sample_weight)
        # Gradients are summed over replicas, so each adds its share.
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        scaled_loss = model.optimizer.scale_loss(loss / replicas)
    variables = model.trainable_variables
    gradients = embedding.gradients(tape, scaled_loss, variables)
    active = model.objective.active_learner(targets)
    model.apply_update(gradients, variables, active)
    average_statistics(model)
    # Memories keep the rows of all replicas, even with gather="none".
    results = (outputs, targets)
    remember(
        model, *(gather_rows(results) if model.gather == "none" else results)
    )
    logs = log_batch(model, loss, terms, x, targets, outputs, sample_weight)
    return reducible_logs(logs)


@waiting
def test(model: Any, data: Any) -> Tensors:
    """Adds a held-out batch to the logs, and returns them."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    targets = model.objective.completed(x, targets_of(y))
    outputs = model.outputs_of(x, training=False)
    outputs, targets, sample_weight = gather_for_loss(
        model, outputs, targets, sample_weight
    )
    terms = model.objective.evaluate(outputs, targets)
    loss = loss_of(model, terms, sample_weight)
    logs = log_batch(model, loss, terms, x, targets, outputs, sample_weight)
    return reducible_logs(logs)
