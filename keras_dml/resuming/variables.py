"""Variables: their values in a state, and back."""

import re

import keras
import numpy as np

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
