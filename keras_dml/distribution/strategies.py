"""Models under a strategy with several replicas."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from keras_dml.utils.tensorflow import tf

logger = logging.getLogger(__name__)


class _Alone:
    """Replaces the default strategy on backends without strategies."""

    num_replicas_in_sync = 1
    cluster_resolver = None

    def scope(self) -> AbstractContextManager[None]:
        return nullcontext()

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        return (value,)


def current_strategy() -> tf.distribute.Strategy:
    """The strategy of the current scope."""
    if keras.backend.backend() == "tensorflow":
        return tf.distribute.get_strategy()
    return _Alone()


def strategy_of(model: keras.Model) -> tf.distribute.Strategy:
    """The strategy of a model, or the default one."""
    return getattr(model, "distribute_strategy", None) or current_strategy()


def replica_context() -> tf.distribute.ReplicaContext | None:
    """The context of a replica; None unless there are several."""
    context = tf.distribute.get_replica_context()
    is_alone = context is None or context.num_replicas_in_sync == 1
    return None if is_alone else context


def count_replicas(strategy: tf.distribute.Strategy) -> int:
    """Number of replicas, or of devices that `keras.distribution` uses."""
    distribution = keras.distribution.distribution()
    if distribution is not None:
        return int(distribution.device_mesh.devices.size)
    return int(strategy.num_replicas_in_sync)


def check_optimizer(optimizer: keras.Optimizer) -> None:
    """Raises if an option is not supported by TensorFlow on replicas."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    ways_out = {
        "gradient_accumulation_steps": "Use more replicas, or larger batches.",
        "use_ema": "Use keras.callbacks.SwapEMAWeights on one replica.",
    }
    for name, way_out in ways_out.items():
        value = getattr(optimizer, name, None)
        if value:
            raise ValueError(
                f"`{name}` of {type(optimizer).__name__} must not be used with "
                "several replicas, because TensorFlow does not support its "
                f"conditional update. Received: {name}={value}. {way_out}"
            )


def check_scope(
    variables: list[keras.Variable], strategy: tf.distribute.Strategy
) -> None:
    """Checks that all variables were created in the strategy's scope."""
    for variable in variables:
        if not strategy.extended.variable_created_in_scope(variable.value):
            raise ValueError(
                "All variables of a model must be created in the scope of the "
                "strategy that it is trained with. Received: the variable "
                f"{variable.path!r}, which was created outside of it. Create "
                "the model, its backbone, losses and miners within `with "
                "strategy.scope():`, and call `compile` there, too."
            )


def synchronize(model: keras.Model) -> None:
    """Makes batch normalization use the statistics of all replicas."""
    for layer in _normalizations(model):
        layer.synchronized = True


def check_parts(model: keras.Model) -> None:
    """Checks that a model can embed a batch in parts."""
    for layer in _normalizations(model):
        if layer.synchronized and layer.trainable:
            raise ValueError(
                "`accumulate` of MetricModel must be 1 with several replicas "
                "and synchronized batch normalization, because replicas cannot "
                "exchange statistics within a part of a batch. Received: "
                f"synchronized=True for {layer.name!r}. Use "
                "synchronized=False, freeze the layer, or use accumulate=1."
            )


def average_statistics(model: keras.Model) -> None:
    """Averages the moving statistics over the replicas.

    Keras lets them drift apart, and saves those of the first replica.
    """
    context = replica_context()
    if context is None:
        return
    statistics = [
        variable
        for layer in _normalizations(model)
        if layer.trainable and not layer.synchronized
        for variable in layer.non_trainable_variables
    ]
    if not statistics:
        return
    values = [tf.convert_to_tensor(variable) for variable in statistics]
    means = context.all_reduce(tf.distribute.ReduceOp.MEAN, values)
    for variable, mean in zip(statistics, means, strict=True):
        variable.assign(mean)


def _normalizations(model: keras.Model) -> list[Any]:
    return [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
