"""Resumption: the callbacks of a `fit` that can be resumed.

It is one class and therefore one file: what is saved, restored and compared has
to be seen together.
"""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from keras_dml.data.planned import is_shuffled
from keras_dml.distribution.batches import ReplicaBatches
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import done_by_chief, sum_all, this_worker
from keras_dml.resuming import states
from keras_dml.resuming.resume import (
    TERMINATED,
    Generations,
    Resume,
    State,
    StateError,
)
from keras_dml.utils.files import differences, format_changes
from keras_dml.utils.tensorflow import tf

logger = logging.getLogger(__name__)

_SECONDS = 1.0
"""Approximate time between two exchanges of the workers, which are slow."""


class Agreement:
    """Makes all workers aware, after the same step, of requests to any of them.

    A signal reaches only one process, and clocks differ, but all workers train
    the same steps. So they exchange their requests after a number of steps that
    the first worker sets from the time that previous steps took.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        self._worker = this_worker(strategy)
        self._steps = self._steps_left = 1
        self._exchanged_at = time.monotonic()

    def exchange(self, *wishes: bool, at_once: bool = False) -> list[bool]:
        """Returns which requests any worker has; none if no exchange is due.

        All workers must call it once per step, with the same `at_once`: whether
        to exchange the requests even if that is not due.
        """
        if self._worker.count == 1:
            return list(wishes)
        self._steps_left -= 1
        if self._steps_left > 0 and not at_once:
            return [False] * len(wishes)
        steps = 0
        if self._worker.is_chief:
            steps_since = self._steps - self._steps_left
            seconds = time.monotonic() - self._exchanged_at
            steps = max(1, round(steps_since * _SECONDS / max(seconds, 1e-3)))
        *counts, steps = sum_all(np.array([*wishes, steps]), self._strategy)
        self._steps = self._steps_left = int(steps)
        self._exchanged_at = time.monotonic()
        return [count > 0 for count in counts]


class Resumption(keras.callbacks.CallbackList):
    """The callbacks of a `fit` whose state is saved and restored.

    `rest` returns the batches of an epoch from a step on, and `is_ordered` is
    whether the batches are the same in every epoch: arrays that are in order.
    `weights` are `class_weight` and `sample_weight` of `fit`.
    """

    def __init__(
        self,
        resume: Resume,
        callbacks: list[keras.callbacks.Callback],
        model: keras.Model,
        data: Any,
        rest: Callable[[int], Iterable[Any]],
        is_ordered: bool,
        weights: Mapping[str, Any],
        initial_epoch: int,
        **params: Any,
    ) -> None:
        self.resume = resume
        self.data = data
        self._rest = rest
        self._is_ordered = is_ordered
        self._weights = weights
        planner = data.sampler
        if planner and resume.sampler and planner is not resume.sampler:
            raise ValueError(
                "`sampler` of Resume must be the one that plans the batches. "
                f"Received: {resume.sampler!r} for batches of {planner!r}. "
                "Leave it out."
            )
        self._sampler = planner or resume.sampler
        # Whether training can continue at any step of an epoch.
        self._can_go_on = (
            data.sampler is not None
            and not is_shuffled(data.x)
            and int(data.x.cardinality()) >= 0
        )
        self._initial_epoch = initial_epoch
        self._generations = Generations(resume.folder)
        self._worker = this_worker(strategy_of(model))
        self._iterator: Any = None
        self._identity: State = {}
        self._restored: State | None = None
        self._epoch = 0
        self._planned: State = {}
        self._results: dict[str, Any] = {}
        self._steps = 0
        self._saved_at = time.monotonic()
        self._has_failed = False
        self._agreement = Agreement(strategy_of(model))
        self._is_terminated = False
        self._handler: Any = None
        self._exits = contextlib.ExitStack()
        super().__init__(
            callbacks,
            add_history=True,
            add_progbar=params["verbose"] != 0,
            model=model,
            **params,
        )
        within = resume.every_steps or resume.every_seconds
        if within and not self._can_go_on:
            logger.warning(
                "Resume only saves states at the ends of epochs, and not "
                "every %s: without a sampler that plans the batches, training "
                "cannot be resumed within an epoch. Use "
                "keras_dml.data.pipeline.",
                resume.every,
            )

    def __enter__(self) -> Self:
        if self._worker.is_chief:
            self._exits.enter_context(self._generations.lock())
        self._exits.enter_context(self._sigterm_noted())
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    def take_iterator(self, iterator: Any) -> None:
        """Takes the iterator of `fit`, which may start within an epoch."""
        if self._iterator is None:  # Validation has its own.
            self._iterator = iterator
            self.set_params({**self.params, "steps": iterator.num_batches})

    def on_train_begin(self, logs: Any = None) -> None:
        self._identity = {
            **states.identity_of(
                self.model,
                self._sampler,
                self.data.x,
                self.data.y,
                **self._weights,
            ),
            "initial_epoch": self._initial_epoch,
            "callbacks": sorted(states.named_callbacks(self.callbacks)),
            **self.resume.identity,
        }
        if self.data.is_balanced:
            del self._identity["sampler"]["seed"]
        start = self._read()
        if start is None:
            super().on_train_begin(logs)
            return
        path, state = start
        self._check(state)
        states.prepare_callbacks(self.callbacks, state["callbacks"])
        self._restore(state)
        super().on_train_begin(logs)
        states.restore_callbacks(self.callbacks, state["callbacks"])
        self._log_start(path, state)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        state, self._restored = self._restored, None
        if state is None or not state["step"]:
            super().on_epoch_begin(epoch, logs)
            self._planned = self._state_of_sampler()
            return
        for callback in self.callbacks:
            # Callbacks with a state have begun the epoch.
            if not states.is_stateful(callback):
                callback.on_epoch_begin(epoch, logs)
        self._planned = state["sampler"]
        states.restore_metrics(self.model, state["metrics"])
        if state["step"] == self._iterator.num_batches:
            # Keras takes the names of logs from a step, but none is left.
            self._results = self.model.get_metrics_result()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(batch, logs)
        self._steps += 1
        seconds = self.resume.every_seconds
        is_time = (  # By the clock of the first worker.
            seconds is not None
            and self._worker.is_chief
            and time.monotonic() - self._saved_at >= seconds
        )
        is_time, ends = self._agreement.exchange(is_time, self._is_terminated)
        is_last = batch + 1 >= (self._iterator.num_batches or math.inf)
        if is_last and keras.backend.backend() == "jax":
            return  # Its `fit` needs a step; the end of the epoch saves.
        is_due = ends or is_time or self._steps == self.resume.every_steps
        if is_due and self._can_go_on:
            if self._async_train:
                self._flush_futures()
            # The last group of steps may have been smaller.
            step = min(batch + 1, self._iterator.num_batches)
            self._save(self._epoch, step)
        if ends:
            self._exit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, {**self._results, **(logs or {})})
        self._results = {}
        self._save(epoch + 1, 0)
        (ends,) = self._agreement.exchange(self._is_terminated, at_once=True)
        if ends:
            self._exit()

    def _read(self) -> tuple[Path, State] | None:
        """The state that all workers continue from, as the first chooses."""
        choices: list[tuple[Path, State]] = []

        def choose() -> str | None:
            newest = self._generations.read()
            if newest is None:
                return None
            choices.append(newest)
            return newest[0].name

        name = done_by_chief(choose, strategy_of(self.model))
        if name is not None and not choices:
            choices.append(self._generations.read_named(name))
        return choices[0] if choices else None

    def _save(self, epoch: int, step: int) -> None:
        """Writes the state after a number of steps of an epoch."""
        began = time.perf_counter()
        if keras.backend.backend() == "jax":  # It has the state elsewhere.
            self.model.jax_state_sync()
        metrics = None
        if step:  # All workers take part.
            metrics = states.state_of_metrics(
                self.model.metrics_variables, strategy_of(self.model)
            )
        if self._worker.is_chief:
            try:
                self._generations.write(self._state(epoch, step, metrics))
            except OSError as error:
                if not self._has_failed:
                    logger.error(
                        "Could not write the state of training to %s: %s. "
                        "Earlier states are kept, and training continues.",
                        self.resume.folder,
                        error,
                    )
                self._has_failed = True
            else:
                if self._has_failed:
                    logger.warning(
                        "The state of training can be written to %s again.",
                        self.resume.folder,
                    )
                self._has_failed = False
        self._steps, self._saved_at = 0, time.monotonic()
        self.resume.seconds += time.perf_counter() - began

    def _state(self, epoch: int, step: int, metrics: State | None) -> State:
        return {
            "identity": self._identity,
            "epoch": epoch,
            "step": step,
            "is_stopped": bool(self.model.stop_training) and not step,
            "variables": states.state_of_variables(
                states.variables_of(self.model)
            ),
            "metrics": metrics,
            # The rest of an epoch is planned again.
            "sampler": self._planned
            if 0 < step < self._iterator.num_batches
            else self._state_of_sampler(),
            "callbacks": states.states_of_callbacks(self.callbacks),
        }

    def _state_of_sampler(self) -> State:
        sampler = self._sampler
        if sampler is None:
            return {}
        return {**sampler.get_state(), "seed": sampler.seed}

    def _check(self, state: State) -> None:
        there = state["identity"]
        if not self._worker.is_chief:  # The chief has more callbacks.
            there = {**there, "callbacks": self._identity["callbacks"]}
        changes = differences(
            there, self._identity
        ) or states.changed_variables(
            states.variables_of(self.model), state["variables"]
        )
        if changes:
            raise StateError(
                f"The state in {self.resume.folder} must be of this training. "
                "Received: the state of a training with other settings:\n  "
                f"{format_changes(changes)}\nUse the original settings, or "
                "another folder to start again."
            )

    def _restore(self, state: State) -> None:
        model, sampler, step = self.model, self._sampler, state["step"]
        states.restore_variables(states.variables_of(model), state["variables"])
        if sampler is not None:
            sampler.set_state(state["sampler"])
            sampler.seed = state["sampler"]["seed"]
        model._initial_epoch = (
            self.params["epochs"] if state["is_stopped"] else state["epoch"]
        )
        if step:
            begin_at(self._iterator, step, self._rest)
        self._restored = state

    def _log_start(self, path: Path, state: State) -> None:
        epoch, epochs = state["epoch"], self.params["epochs"]
        if state["is_stopped"] or epoch >= epochs:
            logger.info("The training of %s is already complete.", path)
            return
        logger.info(
            "Training continues from %s: epoch %d of %d, after step %d.",
            path,
            epoch + 1,
            epochs,
            state["step"],
        )
        if not (self._can_go_on or self._is_ordered):
            logger.warning(
                "Resume cannot know which batches come next, because no "
                "sampler of keras_dml plans them. The result is that of "
                "uninterrupted training only if the batches are the same in "
                "every epoch. Use keras_dml.data.pipeline."
            )

    @contextlib.contextmanager
    def _sigterm_noted(self) -> Iterator[None]:
        """Delays a first SIGTERM until the end of a step, but not a second."""
        previous = signal.getsignal(signal.SIGTERM)
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or previous in (signal.SIG_IGN, None):
            yield
            return

        def note(*_: object) -> None:
            self._is_terminated = True
            signal.signal(signal.SIGTERM, previous)

        self._handler = previous
        signal.signal(signal.SIGTERM, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, previous)
        if self._is_terminated:  # It came after the last step.
            signal.raise_signal(signal.SIGTERM)

    def _exit(self) -> None:
        """Ends the process, or calls the program's own handler of SIGTERM."""
        self._is_terminated = False
        # All workers wait until the first one has written.
        done_by_chief(lambda: None, strategy_of(self.model))
        if callable(self._handler):
            self._handler(signal.SIGTERM, None)
            return
        folder, has_state = self.resume.folder, self.resume.has_state
        if not has_state:
            logger.error(
                "SIGTERM: training stops here, and is lost: no state could be "
                "written to %s.",
                folder,
            )
            raise SystemExit(128 + signal.SIGTERM)
        logger.warning(
            "SIGTERM: training stops here. The same call continues from the "
            "state in %s%s.",
            folder,
            ", an earlier one: this one could not be written"
            if self._has_failed
            else "",
        )
        raise SystemExit(TERMINATED)


def begin_at(
    iterator: Any, step: int, rest: Callable[[int], Iterable[Any]]
) -> None:
    """Makes the next epoch of a Keras iterator begin at a given step.

    `rest` returns the batches of an epoch from a step on.
    """
    whole = iterator._enumerate_iterator

    def partial() -> Iterator[tuple[int, int, Any]]:
        iterator._enumerate_iterator = whole
        iterator.data_adapter.on_epoch_begin()
        batches = _batches(iterator, rest(step))
        size = iterator.steps_per_execution
        for first in range(step, iterator.num_batches, size):
            yield first, first + size - 1, batches
        iterator.data_adapter.on_epoch_end()

    iterator._enumerate_iterator = partial


def _batches(iterator: Any, data: Any) -> Iterator[Any]:
    """Batches in the form that the step takes."""
    if keras.backend.backend() == "tensorflow":
        is_split = isinstance(data, ReplicaBatches)
        return iter(data.get_tf_dataset() if is_split else data)
    batches: Iterator[Any] = type(iterator)(x=data)._get_iterator()
    return batches
