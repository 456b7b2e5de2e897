"""Where `fit` begins: the epoch, the step within it, the sampler's plan."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_dml.data import Sampler
from keras_dml.data.planned import from_step
from keras_dml.model.replicas import replicated
from keras_dml.model.training_data import Prepared
from keras_dml.resuming import Resume
from keras_dml.resuming.resumption import Batches, Resumption, begin_at


class FollowEpochs(keras.callbacks.Callback):
    """Makes a sampler skip what a restored training skips.

    `keras.callbacks.BackupAndRestore` loads the weights and makes `fit` begin
    with a later epoch, but the sampler would plan its first epochs again. If
    `save_freq` is a number of steps, the weights are those of the middle of an
    epoch, whose first steps Keras would train again.

    Args:
        sampler: The sampler that plans the batches.
        initial_epoch: The epoch that `fit` was asked to begin with.
        backup: The callback that may restore the training.
        rest: Function that returns the batches of an epoch from a given step.
    """

    def __init__(
        self,
        sampler: Sampler,
        initial_epoch: int,
        backup: keras.callbacks.BackupAndRestore | None,
        rest: Callable[[int], Any],
    ) -> None:
        super().__init__()
        self.sampler = sampler
        self.initial_epoch: int | None = initial_epoch
        self.backup = backup
        self.rest = rest
        self._iterator: Any = None

    def steer(self, iterator: Any) -> None:
        """Takes the iterator of `fit`; see `Resumption`."""
        self._iterator = self._iterator or iterator

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.backup is not None:
            self.backup._current_epoch = epoch  # Else 0 until it has ended.
        # Only the first epoch that is trained may be later than was asked.
        if self.initial_epoch is None:
            return
        self.sampler.epoch += epoch - self.initial_epoch
        self.initial_epoch = None
        step = self._trained_steps()
        if step:
            begin_at(self._iterator, step, self.rest)

    def _trained_steps(self) -> int:
        """Number of steps of the epoch that the weights have been trained
        for."""
        backup = self.backup
        is_restored = self.model._initial_epoch is not None
        if backup is None or backup.save_freq == "epoch" or not is_restored:
            return 0
        path = Path(backup._training_metadata_path)
        return 1 + int(json.loads(path.read_text())["batch"])


def backup_among(callbacks: Any) -> keras.callbacks.BackupAndRestore | None:
    """The Keras callback that restores a training, if there is one."""
    kind = keras.callbacks.BackupAndRestore
    return next((x for x in _flat(callbacks) if isinstance(x, kind)), None)


def with_callback(callback: keras.callbacks.Callback, callbacks: Any) -> Any:
    """Callbacks as given to `fit`, preceded by one more."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks.insert(0, callback)
        return callbacks
    return [callback, *keras.tree.flatten(callbacks or [])]


def split_resume(callbacks: Any) -> tuple[Resume | None, Any]:
    """Separates `Resume` from the other callbacks given to `fit`.

    Raises:
        ValueError: If there are two, or others that restore a training.
    """
    flat = _flat(callbacks)
    restoring = [
        x
        for x in flat
        if isinstance(x, Resume | keras.callbacks.BackupAndRestore)
    ]
    found = [x for x in restoring if isinstance(x, Resume)]
    if not found:
        return None, callbacks
    if len(restoring) > 1:
        kinds = ", ".join(type(x).__name__ for x in restoring)
        raise ValueError(
            "`callbacks` of MetricModel.fit must contain only one that "
            "restores a "
            f"training. Received: {kinds}. Use Resume alone."
        )
    return found[0], [x for x in flat if x is not found[0]]


def _flat(callbacks: Any) -> list[Any]:
    """Callbacks as given to `fit`, in a flat list."""
    is_list = isinstance(callbacks, keras.callbacks.CallbackList)
    return list(
        callbacks.callbacks if is_list else keras.tree.flatten(callbacks)
    )


def check_planned(sampler: Sampler, steps_per_epoch: int | None) -> None:
    """Raises `ValueError` if `fit` is given the length of an epoch.

    One iteration of the pipeline would then span several epochs, and what
    callbacks change at their beginning would take effect late or never.
    """
    if steps_per_epoch is not None:
        raise ValueError(
            "`steps_per_epoch` of MetricModel.fit must be None for batches "
            "planned by a sampler, because the epochs would differ from those "
            "of the plan. "
            f"Received: steps_per_epoch={steps_per_epoch} and {sampler!r}. "
            f"Use {type(sampler).__name__}(…, steps_per_epoch="
            f"{steps_per_epoch})."
        )


@contextmanager
def steering(
    model: keras.Model,
    data: Prepared,
    is_share: bool,
    callbacks: Any,
    initial_epoch: int,
    is_shuffled: bool,
    class_weight: Mapping[int, float] | None,
    sample_weight: Any,
    **params: Any,
) -> Iterator[Any]:
    """Lets `fit` continue where an earlier one ended, if a callback may do so.

    The model passes the iterator of `fit` on before training begins.

    Args:
        model: The model to fit.
        data: The data to fit it to.
        is_share: See `replicated`.
        callbacks: Callbacks as given to `fit`.
        initial_epoch: See `fit`.
        is_shuffled: Whether the rows of arrays are shuffled.
        class_weight: See `fit`.
        sample_weight: See `fit`.
        **params: What `fit` tells callbacks.

    Yields:
        The callbacks, including the one that continues the training.
    """

    def rest(step: int) -> Any:
        """The batches of an epoch from a step on."""
        batches = Prepared(from_step(data.x, step))
        found = replicated(model, batches, is_share=is_share).x
        is_dataset = isinstance(found, tf.data.Dataset)
        return found if is_dataset else found.get_tf_dataset()

    steered: Resumption | FollowEpochs | None = None
    resume, callbacks = split_resume(callbacks)
    if resume is not None:
        is_ordered = data.y is not None and not is_shuffled
        batches = Batches(
            data.x, data.sampler, data.is_balanced, is_ordered, rest,
            data.y, class_weight, sample_weight,
        )  # fmt: skip
        steered = callbacks = Resumption(
            resume, callbacks, model, batches, initial_epoch, **params
        )
    elif data.sampler is not None:
        backup = backup_among(callbacks)
        steered = FollowEpochs(data.sampler, initial_epoch, backup, rest)
        callbacks = with_callback(steered, callbacks)
    model._steered = steered
    try:
        with steered if isinstance(steered, Resumption) else nullcontext():
            yield callbacks
    finally:
        model._steered = None
