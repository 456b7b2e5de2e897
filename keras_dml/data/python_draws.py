"""Layers that draw with Python's generators, as functions of a seed.

`random` and `numpy.random` draw while a graph is made, and every batch would
get the same numbers. So there is no graph of these layers: Python calls them.
"""

import contextlib
import inspect
import pickle
import random
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_dml.utils.types import Tensor

# There is one `random` for all threads.
_LOCK = threading.Lock()


def python_states() -> bytes:
    """States of the generators of Python and NumPy."""
    return pickle.dumps((random.getstate(), np.random.get_state()))


@contextlib.contextmanager
def python_states_kept() -> Iterator[None]:
    """Restores the generators of Python and NumPy; one thread at a time."""
    with _LOCK:
        of_python, of_numpy = random.getstate(), np.random.get_state()
        try:
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)


class Recorder(keras.StatelessScope):
    """Records which variables would change."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.updated: list[keras.Variable] = []

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        super().add_update(update)
        variable, _ = update
        if not any(variable is x for x in self.updated):
            self.updated.append(variable)

    def generators(self) -> list[keras.Variable]:
        """The variables that changed, if all are states of seed generators."""
        for variable in self.updated:
            if not _is_generator(variable):
                raise ValueError(
                    "`augment` of pipeline must not change variables, because "
                    "batches are computed in no fixed order. Received: a "
                    "layer "
                    f"that changes {variable.path!r}."
                )
        return self.updated


class CalledByPython:
    """A layer that Python calls for every batch, one batch at a time.

    The numbers that it draws with `random`, `numpy.random` and its own seed
    generators come from a seed.

    Args:
        layer: The layer, built.
    """

    def __init__(self, layer: keras.Layer) -> None:
        self.layer = layer
        self._generators = [x for x in layer.variables if _is_generator(x)]

    def __call__(self, x: Any, seed: Tensor) -> Any:
        given = tf.nest.flatten(x)

        def run(
            seed: npt.NDArray[np.int64], *arrays: npt.NDArray[Any]
        ) -> list[npt.NDArray[Any]]:
            tensors = [
                tf.convert_to_tensor(array, tensor.dtype)
                for array, tensor in zip(arrays, given, strict=True)
            ]
            packed = tf.nest.pack_sequence_as(x, tensors)
            found = tf.nest.flatten(self._called(packed, seed))
            return [
                tf.cast(new, old.dtype).numpy()
                for new, old in zip(found, given, strict=True)
            ]

        types = [tensor.dtype for tensor in given]
        found = tf.numpy_function(run, [seed, *given], types)
        return tf.nest.pack_sequence_as(x, found)

    def _called(self, x: Any, seed: npt.NDArray[np.int64]) -> Any:
        rng = np.random.default_rng(seed.view(np.uint64))
        states = rng.integers(2**31 - 1, size=(len(self._generators), 2))
        pairs = list(zip(self._generators, states, strict=True))
        # Beside a GPU, too, which trains meanwhile.
        with python_states_kept(), tf.device("CPU:0"), Recorder(pairs) as scope:
            random.seed(int(rng.integers(2**63)))
            np.random.seed(int(rng.integers(2**32)))
            found = call_layer(self.layer, x)
        if any(
            all(x is not y for y in self._generators) for x in scope.updated
        ):
            raise ValueError(
                "`augment` of pipeline must have layers with their own seed "
                "generators "
                "if they also draw with Python's `random`. "
                f"Received: {self.layer!r}, which draws from the global "
                "generator of Keras. "
                "Use self.seed_generator = keras.random.SeedGenerator() in "
                "its constructor, and seed=self.seed_generator in its call."
            )
        return found


def call_layer(layer: keras.Layer, x: Any) -> Any:
    """The output of a layer for a batch in training."""
    takes_mode = "training" in inspect.signature(layer.call).parameters
    return layer(x, **({"training": True} if takes_mode else {}))


def _is_generator(variable: keras.Variable) -> bool:
    return bool(variable.path.endswith("seed_generator_state"))
