"""What a model needs of a strategy that has several replicas."""

import logging
from typing import Any

import keras
import tensorflow as tf

logger = logging.getLogger(__name__)


def strategy_of(model: keras.Model) -> tf.distribute.Strategy:
    """The strategy of a model; on other backends, which have none, the default.

    Args:
        model: Any model of Keras.
    """
    return getattr(model, "distribute_strategy", tf.distribute.get_strategy())


def check_optimizer(optimizer: keras.Optimizer) -> None:
    """Refuses options of optimizers that TensorFlow cannot run on replicas.

    Raises:
        ValueError: If the optimizer accumulates gradients, or keeps an
            average of the weights.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    for name, way_out in (
        (
            "gradient_accumulation_steps",
            "Use more replicas, or larger batches.",
        ),
        ("use_ema", "Use keras.callbacks.SwapEMAWeights on one replica."),
    ):
        value = getattr(optimizer, name, None)
        if value:
            raise ValueError(
                f"`{name}` of {type(optimizer).__name__} does not work on "
                "several replicas: TensorFlow refuses its conditional update. "
                f"Received: {name}={value}. {way_out}"
            )


def check_scope(
    variables: list[keras.Variable], strategy: tf.distribute.Strategy
) -> None:
    """Checks that replicas do not share what each has to have of its own.

    Raises:
        ValueError: If a variable was made outside of the strategy's scope.
    """
    for variable in variables:
        if not strategy.extended.variable_created_in_scope(variable.value):
            raise ValueError(
                "All of a model must be made in the scope of the strategy "
                "that it is trained with. Received: the variable "
                f"{variable.path!r}, made outside of it. Make losses, miners "
                "and backbones within `with strategy.scope():`, as the model, "
                "and call `compile` there, too."
            )


def synchronize(model: keras.Model) -> None:
    """Batch normalization takes its statistics from all replicas."""
    for layer in _normalizations(model):
        layer.synchronized = True


def check_parts(model: keras.Model) -> None:
    """Refuses what a batch that is embedded in parts cannot have.

    Raises:
        ValueError: If batch normalization is to synchronize its statistics.
    """
    for layer in _normalizations(model):
        if layer.synchronized and layer.trainable:
            raise ValueError(
                "`accumulate` of MetricModel must be 1 on several replicas "
                "where batch normalization is synchronized: replicas cannot "
                "send each other anything within a part. Received: "
                f"synchronized=True of {layer.name!r}. Use "
                "synchronized=False, freeze it, or use accumulate=1."
            )


def average_statistics(model: keras.Model) -> None:
    """Replicas take on the mean of the moving statistics that each has.

    Keras lets them drift apart, and saves those of the first replica.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return
    own = [
        variable
        for layer in _normalizations(model)
        if layer.trainable and not layer.synchronized
        for variable in layer.non_trainable_variables
    ]
    if not own:
        return
    values = [tf.convert_to_tensor(variable) for variable in own]
    means = context.all_reduce(tf.distribute.ReduceOp.MEAN, values)
    for variable, mean in zip(own, means, strict=True):
        variable.assign(mean)


def _normalizations(model: keras.Model) -> list[Any]:
    return [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
