"""Workers: processes of a strategy or of JAX, and how they communicate.

Under `keras.distribution`, variables and batches are arrays of all devices, so
every process has to run the same computations on them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

# It is only imported when it is used.
from keras.src.utils.module_utils import jax

from keras_dml.distribution.strategies import current_strategy
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensor


@dataclass(frozen=True)
class Worker:
    """The number of this process among the workers."""

    number: int
    """From 0; worker 0 is the chief."""
    count: int

    @property
    def is_chief(self) -> bool:
        return self.number == 0


def this_worker(strategy: tf.distribute.Strategy | None = None) -> Worker:
    """This process as a worker of a strategy, or a process of JAX."""
    if keras.backend.backend() == "jax":
        return Worker(jax.process_index(), jax.process_count())
    resolver = (strategy or current_strategy()).cluster_resolver
    if resolver is None:
        return Worker(0, 1)
    hosts = resolver.cluster_spec().as_dict()
    chiefs = len(hosts.get("chief", ()))
    count = chiefs + len(hosts.get("worker", ()))
    if count < 2:
        return Worker(0, 1)
    before = chiefs if resolver.task_type == "worker" else 0
    return Worker(before + resolver.task_id, count)


def done_by_chief(
    action: Callable[[], Any], strategy: tf.distribute.Strategy
) -> Any:
    """Runs an action on the chief, and returns its result on every worker.

    All workers must call it; the others wait, and raise a `RuntimeError` if the
    action fails. It returns numbers, strings, or lists and dicts of these.
    """
    worker = this_worker(strategy)
    if worker.count == 1:
        return action()
    if not worker.is_chief:
        outcome = json.loads(_broadcast_text("", strategy))
        if "error" in outcome:
            raise RuntimeError(f"Worker 0 failed: {outcome['error']}")
        return outcome["result"]
    try:
        with alone():
            result = action()
    except Exception as error:
        _broadcast_text(json.dumps({"error": str(error)}), strategy)
        raise
    _broadcast_text(json.dumps({"result": result}), strategy)
    return result


def rows_of_all(
    rows: npt.NDArray[Any], strategy: tf.distribute.Strategy
) -> npt.NDArray[Any]:
    """The rows of all workers, in their order; all must call it."""
    worker = this_worker(strategy)
    if worker.count == 1:
        return rows
    lengths = np.zeros(worker.count, np.int64)
    lengths[worker.number] = len(rows)
    stops = np.cumsum(sum_all(lengths, strategy))
    all_rows = np.zeros((stops[-1], *rows.shape[1:]), rows.dtype)
    stop = stops[worker.number]
    all_rows[stop - len(rows) : stop] = rows
    return sum_all(all_rows, strategy)


def sum_all(
    array: npt.NDArray[Any], strategy: tf.distribute.Strategy
) -> npt.NDArray[Any]:
    """The sum of the arrays of all workers; all must call it."""
    if is_one_of_several():
        from jax.experimental.multihost_utils import process_allgather

        # Bytes are sent, because JAX would narrow integers to 32 bits.
        payload = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        arrays = np.ascontiguousarray(process_allgather(payload))
        stacked = arrays.view(array.dtype).reshape(-1, *array.shape)
        return np.asarray(stacked.sum(axis=0, dtype=array.dtype))
    local_replicas = len(strategy.extended.worker_devices)

    def addend(
        context: tf.distribute.experimental.ValueContext,
    ) -> npt.NDArray[Any]:
        is_first = context.replica_id_in_sync_group % local_replicas == 0
        return array if is_first else np.zeros_like(array)

    values = strategy.experimental_distribute_values_from_function(addend)
    return np.asarray(strategy.reduce("SUM", values, axis=None))


def _broadcast_text(text: str, strategy: tf.distribute.Strategy) -> str:
    """The chief's text, on every worker; the others pass an empty one."""
    content = text.encode()
    content += b" " * (-len(content) % 8)  # It is sent as int64.
    (size,) = sum_all(np.array([len(content)]), strategy)
    words = np.frombuffer(content.ljust(size, b"\0"), np.int64)
    return sum_all(words, strategy).tobytes().decode()


# Processes of JAX.


def is_one_of_several() -> bool:
    """Whether `jax.distributed` has connected this process with others."""
    is_jax = keras.backend.backend() == "jax"
    return is_jax and bool(jax.process_count() > 1)


@contextmanager
def alone() -> Iterator[None]:
    """Arrays created in this context belong to this process alone."""
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
    """Compiles a function that only this process calls.

    It reads the variables, which must not be divided among processes.
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


def devices_of_batches() -> int:
    """Number of JAX devices among which a batch is divided."""
    distribution = keras.distribution.distribution()
    is_jax = keras.backend.backend() == "jax" and distribution is not None
    return int(distribution.num_model_replicas) if is_jax else 1


def check_rows(rows: int, devices: int) -> None:
    """Raises `ValueError` if devices cannot divide the rows of a batch."""
    if rows % devices:
        raise ValueError(
            "Batches must have the same number of rows for each of "
            f"{devices} devices. Received: {rows} rows. Use a batch size that "
            "is a multiple, and dataset.batch(…, drop_remainder=True); "
            "keras_dml.evaluation.embed takes any number of rows."
        )


def rows_of_process(batch: Any, is_share: bool = False) -> Any:
    """This process's rows of a batch of arrays.

    The batch has the rows of all processes, in their order, or, if `is_share`,
    those of this process.
    """
    if not is_one_of_several():
        check_rows(len(keras.tree.flatten(batch)[0]), devices_of_batches())
        return batch
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.DataParallel):
        raise ValueError(
            f"{jax.process_count()} processes of JAX must train by "
            "keras.distribution.DataParallel. Received: "
            f"{distribution}. Call keras.distribution.set_distribution("
            "keras.distribution.DataParallel()) before the model is created."
        )
    parts = 1 if is_share else jax.process_count()
    devices = distribution.num_model_replicas * parts // jax.process_count()
    rows = len(keras.tree.flatten(batch)[0])
    check_rows(rows, devices)
    first = 0 if is_share else jax.process_index() * rows // parts
    rows_here = slice(first, first + rows // parts)
    return keras.tree.map_structure(
        lambda x: None if x is None else x[rows_here], batch
    )
