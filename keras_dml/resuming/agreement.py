"""Agreement: what one of several workers is asked to do, all do in one step."""

import time

import numpy as np
import tensorflow as tf

from keras_dml.distribution.workers import summed, this_worker

_SECONDS = 1.0
"""About how often workers ask each other, as it takes them some time."""


class Agreement:
    """Tells all workers at the end of one step what any of them wishes.

    A signal reaches one process, and no two have the same clock, but all
    train the same steps. So they ask each other after a number of steps that
    the first one sets, by the time that the steps before have taken.

    Args:
        strategy: What the workers belong to.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        self._worker = this_worker(strategy)
        self._steps = self._left = 1
        self._asked_at = time.monotonic()

    def reached(self, *wishes: bool, at_once: bool = False) -> list[bool]:
        """Which wishes some worker has; none, if they do not ask now.

        All workers have to call it alike, once a step.

        Args:
            *wishes: Of this worker.
            at_once: Whether they ask in any case.
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
