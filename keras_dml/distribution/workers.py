"""Workers: the processes of a strategy, and what they tell each other."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

_WORD = 8
"""Bytes of the integers in which text is sent."""


@dataclass(frozen=True)
class Worker:
    """Which of several processes this is."""

    number: int
    """From 0, which is the chief."""
    count: int

    @property
    def is_chief(self) -> bool:
        return self.number == 0


def this_worker(strategy: tf.distribute.Strategy | None = None) -> Worker:
    """Which worker of a strategy this process is.

    Args:
        strategy: None: the one that is in scope.
    """
    strategy = strategy or tf.distribute.get_strategy()
    resolver = strategy.cluster_resolver
    hosts = resolver.cluster_spec().as_dict() if resolver else {}
    chiefs = len(hosts.get("chief", ()))
    count = chiefs + len(hosts.get("worker", ()))
    if count < 2:
        return Worker(0, 1)
    before = chiefs if resolver.task_type == "worker" else 0
    return Worker(before + resolver.task_id, count)


def done_by_chief(
    action: Callable[[], Any], strategy: tf.distribute.Strategy
) -> Any:
    """What an action gives, which only the chief does, on every worker.

    All workers have to call it; the others wait.

    Args:
        action: Gives numbers, strings, and lists and dicts of them.
        strategy: What the workers belong to.

    Raises:
        RuntimeError: On other workers than the chief, if the action raised
            an error there.
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
        result = action()
    except Exception as error:
        _text_of_chief(json.dumps({"error": str(error)}), strategy)
        raise
    _text_of_chief(json.dumps({"result": result}), strategy)
    return result


def rows_of_all(
    rows: npt.NDArray[Any], strategy: tf.distribute.Strategy
) -> npt.NDArray[Any]:
    """The rows of all workers, in their order; all have to call it."""
    worker = this_worker(strategy)
    if worker.count == 1:
        return rows
    lengths = np.zeros(worker.count, np.int64)
    lengths[worker.number] = len(rows)
    stops = np.cumsum(_summed(lengths, strategy))
    whole = np.zeros((stops[-1], *rows.shape[1:]), rows.dtype)
    stop = stops[worker.number]
    whole[stop - len(rows) : stop] = rows
    return _summed(whole, strategy)


def _text_of_chief(text: str, strategy: tf.distribute.Strategy) -> str:
    """The text of the chief; that of all others is empty."""
    content = text.encode()
    content += b" " * (-len(content) % _WORD)
    (size,) = _summed(np.array([len(content)]), strategy)
    words = np.frombuffer(content.ljust(size, b"\0"), np.int64)
    return _summed(words, strategy).tobytes().decode()


def _summed(
    array: npt.NDArray[Any], strategy: tf.distribute.Strategy
) -> npt.NDArray[Any]:
    """The sum of the arrays of all workers."""
    zeros, here = np.zeros_like(array), len(strategy.extended.worker_devices)

    def own(context: tf.distribute.ValueContext) -> npt.NDArray[Any]:
        is_first = context.replica_id_in_sync_group % here == 0
        return array if is_first else zeros

    values = strategy.experimental_distribute_values_from_function(own)
    return np.asarray(strategy.reduce("SUM", values, axis=None))
