"""What a model needs of a strategy that has several replicas."""

import logging

import keras
import tensorflow as tf

logger = logging.getLogger(__name__)


def check_optimizer(optimizer: keras.Optimizer) -> None:
    """Refuses options of optimizers that TensorFlow cannot run on replicas.

    Raises:
        ValueError: If the optimizer accumulates gradients, or keeps an
            average of the weights.
    """
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
                "and backbones within `with strategy.scope():`, as the model."
            )


def synchronize(model: keras.Model) -> None:
    """Batch normalization takes its statistics from all replicas."""
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = True
