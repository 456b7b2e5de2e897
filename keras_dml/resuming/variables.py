"""Saving the values of variables in a state, and restoring them."""

import re

import keras
import numpy as np
import tensorflow as tf

from keras_dml.distribution.workers import rows_of_all, this_worker
from keras_dml.resuming.generations import Array, State
from keras_dml.utils.differences import differences


def state_of(variables: list[keras.Variable]) -> State:
    """The names and values of variables."""
    return {
        "names": [_name(v) for v in variables],
        "values": [_value(v) for v in variables],
    }


def changed(variables: list[keras.Variable], state: State) -> list[str]:
    """How the variables of a state differ from the given ones."""
    there = [
        f"{name} {value.shape}"
        for name, value in zip(state["names"], state["values"], strict=True)
    ]
    here = [f"{_name(v)} {tuple(v.shape)}" for v in variables]
    return differences({"variable": there}, {"variable": here})


def restore(variables: list[keras.Variable], state: State) -> None:
    """Sets variables to the values of a state."""
    for variable, value in zip(variables, state["values"], strict=True):
        variable.assign(value.view(np.dtype(variable.dtype)))


def state_of_metrics(
    metrics: list[keras.Variable], strategy: tf.distribute.Strategy
) -> State:
    """Like `state_of`, with the values of every replica, (R, …).

    All workers must call it. The sum over replicas could not be divided among
    them again without rounding errors.
    """
    local = strategy.experimental_local_results
    return {
        "names": [_name(v) for v in metrics],
        "values": [
            rows_of_all(np.stack([_value(x) for x in local(v.value)]), strategy)
            for v in metrics
        ],
    }


def restore_metrics(
    metrics: list[keras.Variable],
    state: State,
    strategy: tf.distribute.Strategy,
) -> None:
    """Sets the metrics of each replica to its values in a state."""
    worker = this_worker(strategy).number
    for metric, values in zip(metrics, state["values"], strict=True):
        own = strategy.experimental_local_results(metric.value)
        first = worker * len(own)
        for variable, value in zip(own, values[first:], strict=False):
            variable.assign(value.view(np.dtype(metric.dtype)))


def variables_of(model: keras.Model) -> list[keras.Variable]:
    """Weights, states of random generators and optimizer slots of a model."""
    found = [*model.variables, *model.optimizer.variables]
    return list({id(v): v for v in found}.values())


def _name(variable: keras.Variable) -> str:
    # Numbers count the layers of the same kind that were created before.
    return f"{re.sub(r'_[0-9]+', '', variable.path)} {variable.dtype}"


def _value(variable: keras.Variable) -> Array:
    value = np.asarray(keras.ops.convert_to_numpy(variable))
    # NumPy's files do not support types defined elsewhere, like bfloat16.
    is_known = value.dtype.kind != "V"
    return value if is_known else value.view(f"u{value.dtype.itemsize}")
