"""Variables: their values in a state, and back."""

import re

import keras
import numpy as np
import tensorflow as tf

from keras_dml.distribution.workers import rows_of_all, this_worker
from keras_dml.resuming.generations import Array, State


def state_of(variables: list[keras.Variable]) -> State:
    """What variables are called, and their values."""
    return {
        "names": [_name(v) for v in variables],
        "values": [_value(v) for v in variables],
    }


def differences(variables: list[keras.Variable], state: State) -> list[str]:
    """In what a state is not one of these variables."""
    here = [f"{_name(v)} {tuple(v.shape)}" for v in variables]
    there = [
        f"{name} {value.shape}"
        for name, value in zip(state["names"], state["values"], strict=True)
    ]
    changed = [
        f"variable: {before} → {now}"
        for before, now in zip(there, here, strict=False)
        if before != now
    ]
    if len(there) != len(here):
        changed.append(f"number of variables: {len(there)} → {len(here)}")
    return changed


def restore(variables: list[keras.Variable], state: State) -> None:
    """Gives variables the values of a state."""
    for variable, value in zip(variables, state["values"], strict=True):
        variable.assign(value.view(np.dtype(variable.dtype)))


def state_of_metrics(
    metrics: list[keras.Variable], strategy: tf.distribute.Strategy
) -> State:
    """As `state_of`, with the values of each replica, (R, …).

    All workers have to call it. The sum over replicas, which metrics have
    elsewhere, cannot be divided among them again to the last bit.
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
    """Gives each replica the values that `state_of_metrics` has of it."""
    worker = this_worker(strategy).number
    for metric, values in zip(metrics, state["values"], strict=True):
        own = strategy.experimental_local_results(metric.value)
        first = worker * len(own)
        for variable, value in zip(own, values[first:], strict=False):
            variable.assign(value.view(np.dtype(metric.dtype)))


def variables_of(model: keras.Model) -> list[keras.Variable]:
    """Of a model and its optimizer: weights, states of generators, slots."""
    found = [*model.variables, *model.optimizer.variables]
    return list({id(v): v for v in found}.values())


def _name(variable: keras.Variable) -> str:
    # Numbers are of how many layers of a kind there were before.
    return f"{re.sub(r'_[0-9]+', '', variable.path)} {variable.dtype}"


def _value(variable: keras.Variable) -> Array:
    value = np.asarray(keras.ops.convert_to_numpy(variable))
    # NumPy's files do not know the types that came after it, like bfloat16.
    is_known = value.dtype.kind != "V"
    return value if is_known else value.view(f"u{value.dtype.itemsize}")
