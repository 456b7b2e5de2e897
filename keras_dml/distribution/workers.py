"""Workers: the processes of a strategy, and how they communicate."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.distribution.processes import (
    alone,
    arrays_of_all,
    is_one_of_several,
    jax,
)
from keras_dml.distribution.strategies import current_strategy
from keras_dml.utils.tensorflow import tf

_WORD = 8
"""Size, in bytes, of the integers that text is sent as."""


@dataclass(frozen=True)
class Worker:
    """The place of this process among the workers."""

    number: int
    """Number of this worker; 0 is the chief."""
    count: int

    @property
    def is_chief(self) -> bool:
        return self.number == 0


def this_worker(strategy: tf.distribute.Strategy | None = None) -> Worker:
    """Which worker of a strategy, or process of JAX, this process is.

    Args:
        strategy: The strategy; None for the current one.
    """
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

    All workers must call it; the others wait.

    Args:
        action: Returns numbers, strings, or lists and dicts of these.
        strategy: The strategy of the workers.

    Raises:
        RuntimeError: On the other workers, if the action raised an error on the
            chief.
    """
    worker = this_worker(strategy)
    if worker.count == 1:
        return action()
    if not worker.is_chief:
        told = json.loads(_text_of_chief("", strategy))
        if "error" in told:
            raise RuntimeError(f"Worker 0 failed: {told['error']}")
        return told["result"]
    try:
        with alone():
            result = action()
    except Exception as error:
        _text_of_chief(json.dumps({"error": str(error)}), strategy)
        raise
    _text_of_chief(json.dumps({"result": result}), strategy)
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
    stops = np.cumsum(summed(lengths, strategy))
    whole = np.zeros((stops[-1], *rows.shape[1:]), rows.dtype)
    stop = stops[worker.number]
    whole[stop - len(rows) : stop] = rows
    return summed(whole, strategy)


def summed(
    array: npt.NDArray[Any], strategy: tf.distribute.Strategy
) -> npt.NDArray[Any]:
    """The sum of the arrays of all workers; all must call it."""
    if is_one_of_several():
        of_all = arrays_of_all(array)
        return np.asarray(of_all.sum(axis=0, dtype=array.dtype))
    zeros, here = np.zeros_like(array), len(strategy.extended.worker_devices)

    def own(
        context: tf.distribute.experimental.ValueContext,
    ) -> npt.NDArray[Any]:
        is_first = context.replica_id_in_sync_group % here == 0
        return array if is_first else zeros

    values = strategy.experimental_distribute_values_from_function(own)
    return np.asarray(strategy.reduce("SUM", values, axis=None))


def _text_of_chief(text: str, strategy: tf.distribute.Strategy) -> str:
    """The text of the chief, on every worker; the others pass an empty one."""
    content = text.encode()
    content += b" " * (-len(content) % _WORD)
    (size,) = summed(np.array([len(content)]), strategy)
    words = np.frombuffer(content.ljust(size, b"\0"), np.int64)
    return summed(words, strategy).tobytes().decode()
