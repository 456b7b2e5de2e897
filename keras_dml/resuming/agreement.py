"""Agreement: a request to one worker is carried out by all in the same step."""

import time

import numpy as np
import tensorflow as tf

from keras_dml.distribution.workers import summed, this_worker

_SECONDS = 1.0
"""Approximate time between two exchanges of the workers, which take time."""


class Agreement:
    """Makes all workers aware, after the same step, of requests to any of them.

    A signal reaches only one process, and clocks differ, but all workers train
    the same steps. So they exchange their requests after a number of steps that
    the first worker sets from the time that previous steps took.

    Args:
        strategy: The strategy of the workers.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        self._worker = this_worker(strategy)
        self._steps = self._left = 1
        self._asked_at = time.monotonic()

    def reached(self, *wishes: bool, at_once: bool = False) -> list[bool]:
        """Which requests any worker has; none if no exchange is due.

        All workers must call it once per step, with the same `at_once`.

        Args:
            *wishes: The requests of this worker.
            at_once: Whether to exchange them even if it is not due.
        """
        if self._worker.count == 1:
            return list(wishes)
        self._left -= 1
        if self._left > 0 and not at_once:
            return [False] * len(wishes)
        steps = self._next_steps() if self._worker.is_chief else 0
        *found, steps = summed(np.array([*wishes, steps]), self._strategy)
        self._steps = self._left = int(steps)
        self._asked_at = time.monotonic()
        return [count > 0 for count in found]

    def _next_steps(self) -> int:
        done = self._steps - self._left
        seconds = time.monotonic() - self._asked_at
        return max(1, round(done * _SECONDS / max(seconds, 1e-3)))
