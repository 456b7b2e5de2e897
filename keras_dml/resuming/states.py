"""States of a training, and its identity, which must not change."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import keras
import numpy as np
import xxhash

from keras_dml.data import Sampler
from keras_dml.data.hashing import contents_of_arrays, digest
from keras_dml.data.planned import examples_of
from keras_dml.distribution.strategies import count_replicas, strategy_of
from keras_dml.distribution.workers import rows_of_all, this_worker
from keras_dml.resuming.resume import Array, State, StateError
from keras_dml.utils.files import differences, format_changes, sync
from keras_dml.utils.tensorflow import is_dataset, tf

logger = logging.getLogger(__name__)


def state_of_variables(variables: list[keras.Variable]) -> State:
    """The names and values of variables."""
    return {
        "names": [_name(v) for v in variables],
        "values": [_value(v) for v in variables],
    }


def changed_variables(
    variables: list[keras.Variable], state: State
) -> list[str]:
    """How the variables of a state differ from the given ones."""
    there = [
        f"{name} {value.shape}"
        for name, value in zip(state["names"], state["values"], strict=True)
    ]
    here = [f"{_name(v)} {tuple(v.shape)}" for v in variables]
    return differences({"variable": there}, {"variable": here})


def restore_variables(variables: list[keras.Variable], state: State) -> None:
    """Sets variables to the values of a state."""
    for variable, value in zip(variables, state["values"], strict=True):
        variable.assign(value.view(np.dtype(variable.dtype)))


def state_of_metrics(
    metrics: list[keras.Variable], strategy: tf.distribute.Strategy
) -> State:
    """Like `state_of_variables`, with the values of every replica, (R, …).

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


def restore_metrics(model: keras.Model, state: State) -> None:
    """Restores the metrics of each replica within an epoch."""
    strategy = strategy_of(model)
    compiled = getattr(model, "_compile_metrics", None)
    if compiled is not None and not compiled.built:
        # Keras creates them in the first step, which is too late.
        with strategy.scope():
            compiled.build(*map(keras.ops.zeros, [(1,), (1, 1)]))
    metrics = model.metrics_variables
    of_one = {**state, "values": [values[0] for values in state["values"]]}
    if changes := changed_variables(metrics, of_one):
        logger.warning(
            "Metrics of this epoch only cover its remaining steps, because "
            "they cannot be restored:\n  %s",
            format_changes(changes),
        )
        return
    worker = this_worker(strategy).number
    for metric, values in zip(metrics, state["values"], strict=True):
        replicas: Any = (metric,)
        if keras.backend.backend() == "tensorflow":
            replicas = strategy.experimental_local_results(metric.value)
        first = worker * len(replicas)
        for variable, value in zip(replicas, values[first:], strict=False):
            variable.assign(value.view(np.dtype(metric.dtype)))


def variables_of(model: keras.Model) -> list[keras.Variable]:
    """Weights, states of random generators and optimizer slots of a model."""
    variables = [*model.variables, *model.optimizer.variables]
    return list({id(v): v for v in variables}.values())


def _name(variable: keras.Variable) -> str:
    # Numbers count the layers of the same kind that were created before.
    return f"{re.sub(r'_[0-9]+', '', variable.path)} {variable.dtype}"


def _value(variable: keras.Variable) -> Array:
    value = np.asarray(keras.ops.convert_to_numpy(variable))
    # NumPy's files do not support types defined elsewhere, like bfloat16.
    is_known = value.dtype.kind != "V"
    return value if is_known else value.view(f"u{value.dtype.itemsize}")


_BY_CLASS: dict[type[keras.callbacks.Callback], tuple[str, ...]] = {
    keras.callbacks.History: ("epoch", "history"),
    keras.callbacks.EarlyStopping: (
        "wait",
        "stopped_epoch",
        "best",
        "best_weights",
        "best_epoch",
    ),
    keras.callbacks.ReduceLROnPlateau: ("wait", "cooldown_counter", "best"),
    keras.callbacks.ModelCheckpoint: (
        "best",
        "_current_epoch",
        "_batches_seen_since_last_saving",
        "_last_batch_seen",
    ),
    keras.callbacks.CSVLogger: ("keys",),
    keras.callbacks.LearningRateScheduler: (),
}
"""Attributes that hold the states of Keras's callbacks."""

_SIZE = "size"


def is_stateful(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback has a state that can be saved."""
    has_own = hasattr(callback, "get_state") and hasattr(callback, "set_state")
    return has_own or isinstance(callback, tuple(_BY_CLASS))


def states_of_callbacks(callbacks: Iterable[keras.callbacks.Callback]) -> State:
    """States by callback name; callbacks of the same class are numbered."""
    return {
        name: _state_of(x) for name, x in named_callbacks(callbacks).items()
    }


def prepare_callbacks(
    callbacks: Iterable[keras.callbacks.Callback], states: State
) -> None:
    """Prepares callbacks before training; a CSV log must have its rows."""
    for name, callback in named_callbacks(callbacks).items():
        if isinstance(callback, keras.callbacks.CSVLogger):
            _cut(callback, states[name][_SIZE])


def restore_callbacks(
    callbacks: Iterable[keras.callbacks.Callback], states: State
) -> None:
    """Restores the states of callbacks once training has begun."""
    for name, callback in named_callbacks(callbacks).items():
        state = states[name]
        if hasattr(callback, "set_state"):
            callback.set_state(state)
            continue
        for attribute in _attributes(callback):
            if attribute in state:
                setattr(callback, attribute, state[attribute])


def named_callbacks(
    callbacks: Iterable[keras.callbacks.Callback],
) -> dict[str, keras.callbacks.Callback]:
    by_name: dict[str, keras.callbacks.Callback] = {}
    for callback in callbacks:
        if is_stateful(callback):
            kind = type(callback).__name__
            number = sum(name.split()[0] == kind for name in by_name)
            by_name[f"{kind} {number}" if number else kind] = callback
    return by_name


def _state_of(callback: keras.callbacks.Callback) -> State:
    if hasattr(callback, "get_state"):
        state: State = callback.get_state()
        return state
    state = {
        name: getattr(callback, name)
        for name in _attributes(callback)
        if hasattr(callback, name)
    }
    if state.get("best_weights") is not None:
        # Weights of scalars are NumPy numbers. A file would return them as
        # Python numbers, to which variables cannot be set.
        state["best_weights"] = list(map(np.asarray, state["best_weights"]))
    if isinstance(callback, keras.callbacks.CSVLogger):
        path = Path(callback.filename)
        sync(path)  # The rows that the state counts must survive a power cut.
        state[_SIZE] = path.stat().st_size
    return state


def _attributes(callback: Any) -> tuple[str, ...]:
    return next(
        names for kind, names in _BY_CLASS.items() if isinstance(callback, kind)
    )


def _cut(logger: keras.callbacks.CSVLogger, size: int) -> None:
    """Removes rows of a log that were written after the state."""
    path = Path(logger.filename)
    actual = path.stat().st_size if path.exists() else 0
    if actual < size:
        raise StateError(
            f"{path} must contain the rows of all epochs trained so far. "
            f"Received: {actual} bytes of {size}. Restore the file, or start "
            "again with another folder."
        )
    os.truncate(path, size)
    logger.append = True


def identity_of(
    model: keras.Model,
    sampler: Sampler | None,
    batches: Any,
    targets: Any = None,
    class_weight: Mapping[int, float] | None = None,
    sample_weight: Any = None,
) -> State:
    """Everything that training depends on and does not itself change."""
    if targets is None:
        examples = examples_of(batches)
        data = None if examples is None else digest(examples)
    else:
        data = _digest((batches, targets))
    name, weights = keras.backend.backend(), class_weight or {}
    backends = {} if name == "tensorflow" else {name: version(name)}
    if not backends or is_dataset(batches):  # TensorFlow reads the data.
        backends = {"tensorflow": tf.__version__, **backends}
    return _stable_json(
        {
            "versions": {
                "keras-dml": version("keras-dml"),
                "keras": keras.__version__,
                **backends,
                "numpy": np.__version__,
            },
            "replicas": count_replicas(strategy_of(model)),
            "jit_compile": model.jit_compile,
            "model": _config(model),
            "optimizer": _config(model.optimizer),
            "sampler": None if sampler is None else _settings(sampler),
            "data": data,
            "class_weight": {k: float(x) for k, x in weights.items()} or None,
            "sample_weight": _digest(sample_weight),
        }
    )


def _digest(arrays: Any) -> str | None:
    if arrays is None:
        return None
    hashed = xxhash.xxh3_128()
    arrays = keras.tree.map_structure(np.asarray, arrays)
    for part in contents_of_arrays(arrays):
        hashed.update(part)
    return hashed.hexdigest()


def _config(layer: Any) -> Any:
    try:
        config = layer.get_config()
    except NotImplementedError:  # A user's class that cannot be saved.
        return type(layer).__name__
    return {"class": type(layer).__name__, **config}


def _settings(sampler: Sampler) -> State:
    """The arguments that a sampler was created with."""
    state = sampler.get_state()
    labels = np.ascontiguousarray(sampler.labels)
    return {
        "class": type(sampler).__name__,
        "labels": xxhash.xxh3_128_hexdigest(labels.tobytes()),
        **{
            name: value
            for name, value in vars(sampler).items()
            if isinstance(value, int | float | str)
            and name not in state
            and not name.startswith("_")
        },
    }


def _stable_json(value: Any) -> Any:
    """A value as JSON returns it, without parts that may change.

    Names that Keras generates contain a running number. A learning rate that is
    not a schedule is a variable.
    """
    if isinstance(value, dict):
        return {
            str(key): _stable_json(x)
            for key, x in value.items()
            if not (key == "learning_rate" and isinstance(x, float))
        }
    if isinstance(value, list | tuple):
        return [_stable_json(x) for x in value]
    if isinstance(value, str):
        return re.sub(r"_[0-9]+\b", "", value)
    return json.loads(json.dumps(value, default=str))
