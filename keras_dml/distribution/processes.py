"""Processes of JAX: what each has alone, and what they tell each other.

Under `keras.distribution`, variables and batches are arrays of all devices, and
every process has to compute with them the same.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

# Which is imported when it is used.
from keras.src.utils.module_utils import jax

from keras_dml.utils.types import Tensor


def is_one_of_several() -> bool:
    """Whether `jax.distributed` has connected this process with others."""
    is_jax = keras.backend.backend() == "jax"
    return is_jax and bool(jax.process_count() > 1)


def arrays_of_all(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The arrays of all processes, (P, …); all must call it."""
    from jax.experimental.multihost_utils import process_allgather

    # JAX would narrow integers to 32 bits.
    sent = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    found = np.ascontiguousarray(process_allgather(sent))
    return found.view(array.dtype).reshape(-1, *array.shape)


@contextmanager
def alone() -> Iterator[None]:
    """Within it, what is created is of this process, not of all."""
    if not is_one_of_several():
        yield
        return
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)


def on_this_process(
    function: Callable[[Any], Any], variables: list[keras.Variable]
) -> Callable[[Any], Any]:
    """A function, compiled, that no other process has to call.

    Args:
        function: Computes with the variables, and leaves them as they are.
        variables: All that it reads.

    Raises:
        ValueError: If other processes have parts of a variable.
    """

    def compute(values: list[Tensor], x: Any) -> Any:
        pairs = list(zip(variables, values, strict=True))
        with keras.StatelessScope(state_mapping=pairs):
            return function(x)

    compiled = jax.jit(compute)
    return lambda x: compiled(list(map(_own_value, variables)), x)


def _own_value(variable: keras.Variable) -> Tensor:
    value = variable.value
    if value.is_fully_addressable:
        return value
    if not value.is_fully_replicated:
        raise ValueError(
            "Each of several processes must have the whole of every variable "
            "that it embeds with. Received: a part of "
            f"{variable.path!r}, {tuple(variable.shape)}. Use "
            "keras.distribution.DataParallel, or embed the saved model in one "
            "process."
        )
    return value.addressable_data(0)


def rows_of_process(batch: Any, is_share: bool = False) -> Any:
    """This process's rows of a batch of arrays.

    Args:
        batch: Arrays with the rows of all processes, in their order.
        is_share: Whether the batch has only the rows of this process.

    Raises:
        ValueError: If the devices of `keras.distribution` cannot have the same
            number of rows, or each process would train a model of its own.
    """
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.DataParallel):
        raise ValueError(
            f"{jax.process_count()} processes of JAX must train by "
            "keras.distribution.DataParallel. Received: "
            f"{distribution}. Call keras.distribution.set_distribution("
            "keras.distribution.DataParallel()) before the model is created."
        )
    among = 1 if is_share else jax.process_count()
    devices = distribution.num_model_replicas * among // jax.process_count()
    rows = len(keras.tree.flatten(batch)[0])
    if rows % devices:
        raise ValueError(
            "Batches must have the same number of rows for each of "
            f"{devices} devices. Received: {rows} rows. Use a batch size that "
            "is a multiple, and dataset.batch(…, drop_remainder=True)."
        )
    first = 0 if is_share else jax.process_index() * rows // among
    own = slice(first, first + rows // among)
    return keras.tree.map_structure(
        lambda x: None if x is None else x[own], batch
    )
