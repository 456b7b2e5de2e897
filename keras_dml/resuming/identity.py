"""Identity: everything that must be unchanged when training continues."""

import json
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import keras
import numpy as np
import xxhash

from keras_dml.data import Sampler
from keras_dml.data.hashing import contents_of_arrays, digest
from keras_dml.data.planned import examples_of
from keras_dml.distribution.strategies import count_replicas, strategy_of
from keras_dml.resuming.generations import State
from keras_dml.utils.tensorflow import is_dataset, tf


def identity_of(
    model: keras.Model,
    sampler: Sampler | None,
    batches: Any,
    targets: Any = None,
    class_weight: Mapping[int, float] | None = None,
    sample_weight: Any = None,
) -> State:
    """Everything that training depends on and does not itself change.

    Args:
        model: A compiled model.
        sampler: The sampler that plans the batches, if there is one.
        batches: The data that the model is trained on.
        targets: The targets, if the data is an array.
        class_weight: As for `fit`.
        sample_weight: As for `fit`.
    """
    if targets is None:
        examples = examples_of(batches)
        data = None if examples is None else digest(examples)
    else:
        data = _digest((batches, targets))
    weights = class_weight or {}
    return _plain(
        {
            "versions": {
                "keras-dml": version("keras-dml"),
                "keras": keras.__version__,
                **_backends(is_dataset(batches)),
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


def _backends(has_pipeline: bool) -> State:
    """Versions of the backend, and of TensorFlow where it reads the data."""
    name = keras.backend.backend()
    other = {} if name == "tensorflow" else {name: version(name)}
    used = not other or has_pipeline
    return {"tensorflow": tf.__version__, **other} if used else other


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


def _plain(value: Any) -> Any:
    """A value as JSON returns it, without parts that may change.

    Names that Keras generates contain a running number. A learning rate that is
    not a schedule is a variable.
    """
    if isinstance(value, dict):
        return {
            str(key): _plain(x)
            for key, x in value.items()
            if not (key == "learning_rate" and isinstance(x, float))
        }
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, str):
        return re.sub(r"_[0-9]+\b", "", value)
    return json.loads(json.dumps(value, default=str))
