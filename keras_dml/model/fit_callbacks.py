"""Callbacks of `fit`: where it begins, and what it logs."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from string import Formatter
from typing import Any

import keras

from keras_dml.data import Sampler
from keras_dml.data.planned import from_step
from keras_dml.model.fit_data import FitData
from keras_dml.model.replicas import replicate
from keras_dml.resuming import Resume
from keras_dml.resuming.resumption import Resumption, begin_at

logger = logging.getLogger(__name__)

_LOGGING_RATES = (
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ReduceLROnPlateau,
)


class FollowEpochs(keras.callbacks.Callback):
    """Makes a sampler skip what a restored training skips.

    `keras.callbacks.BackupAndRestore` loads the weights and makes `fit` begin
    with a later epoch, but the sampler would plan its first epochs again. If
    `save_freq` is a number of steps, the weights are those of the middle of an
    epoch, whose first steps Keras would train again: `rest` returns the batches
    of an epoch from a given step.
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

    def take_iterator(self, iterator: Any) -> None:
        """Takes the iterator of `fit`; see `Resumption`."""
        self._iterator = self._iterator or iterator

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.backup is not None:
            self.backup._current_epoch = epoch  # It would be 0 until the end.
        # Only the first epoch may be later than requested.
        if self.initial_epoch is None:
            return
        self.sampler.epoch += epoch - self.initial_epoch
        self.initial_epoch = None
        backup, is_restored = self.backup, self.model._initial_epoch is not None
        if is_restored and backup is not None and backup.save_freq != "epoch":
            path = Path(backup._training_metadata_path)
            trained_steps = 1 + int(json.loads(path.read_text())["batch"])
            begin_at(self._iterator, trained_steps, self.rest)


def with_callback(callback: keras.callbacks.Callback, callbacks: Any) -> Any:
    """Callbacks as given to `fit`, preceded by one more."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks.insert(0, callback)
        return callbacks
    return [callback, *keras.tree.flatten(callbacks or [])]


def split_resume(callbacks: Any) -> tuple[Resume | None, Any]:
    """Separates `Resume` from other callbacks; it restores alone."""
    flat = _flat(callbacks)
    restoring = [
        x
        for x in flat
        if isinstance(x, Resume | keras.callbacks.BackupAndRestore)
    ]
    resumes = [x for x in restoring if isinstance(x, Resume)]
    if not resumes:
        return None, callbacks
    if len(restoring) > 1:
        kinds = ", ".join(type(x).__name__ for x in restoring)
        raise ValueError(
            "`callbacks` of MetricModel.fit must contain only one that "
            "restores a "
            f"training. Received: {kinds}. Use Resume alone."
        )
    return resumes[0], [x for x in flat if x is not resumes[0]]


def restores_state(callbacks: Any) -> bool:
    """Whether a callback is going to restore the state of a training."""
    for callback in _flat(callbacks):
        if isinstance(callback, Resume) and callback.has_state:
            return True
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            return Path(callback._training_metadata_path).exists()
    return False


def _flat(callbacks: Any) -> list[Any]:
    """Callbacks as given to `fit`, in a flat list."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    return list(keras.tree.flatten(callbacks or []))


@contextmanager
def resuming_fit(
    model: keras.Model,
    data: FitData,
    callbacks: Any,
    initial_epoch: int,
    is_shuffled: bool,
    class_weight: Mapping[int, float] | None,
    sample_weight: Any,
    **params: Any,
) -> Iterator[Any]:
    """Lets `fit` continue where an earlier one ended, if a callback does so.

    The model passes the iterator of `fit` on before training begins. Yields the
    callbacks, including the one that resumes; `params` are for callbacks.
    """

    def rest(step: int) -> Any:
        """The batches of an epoch from a step on."""
        return replicate(model, data._replace(x=from_step(data.x, step))).x

    resumer: Resumption | FollowEpochs | None = None
    resume, callbacks = split_resume(callbacks)
    if resume is not None:
        weights = {"class_weight": class_weight, "sample_weight": sample_weight}
        is_ordered = data.y is not None and not is_shuffled
        resumer = callbacks = Resumption(
            resume, callbacks, model, data, rest, is_ordered, weights,
            initial_epoch, **params,
        )  # fmt: skip
    elif data.sampler is not None:
        kind = keras.callbacks.BackupAndRestore
        backups = [x for x in _flat(callbacks) if isinstance(x, kind)]
        backup = backups[0] if backups else None
        resumer = FollowEpochs(data.sampler, initial_epoch, backup, rest)
        callbacks = with_callback(resumer, callbacks)
    model._resumer = resumer
    try:
        with resumer if isinstance(resumer, Resumption) else nullcontext():
            yield callbacks
    finally:
        model._resumer = None


def check_readers(
    model: keras.Model, callbacks: Any, is_validated: bool
) -> None:
    """Lets callbacks reject, before training, names that nothing will log.

    A callback that reads the logs has a method `check_logged(names)`; one that
    writes to them has a property `logged_names`, which is None if it cannot
    know. Only callbacks that precede a reader count. The reader is not asked
    if the model or a callback before it may log unknown names, which is the
    case if users have written it.
    """
    names = _logged_by_model(model, is_validated)
    for callback in _flat(callbacks):
        if names is None:
            return
        if hasattr(callback, "check_logged"):
            callback.check_logged(names)
        written = _logged_by(callback, model)
        names = None if written is None else names | written


@contextmanager
def measured_epochs_only(
    model: keras.Model, callbacks: Any, is_validated: bool
) -> Iterator[None]:
    """Makes Keras's callbacks skip epochs without the value they read.

    `RetrievalEvaluation(every=…)` and `validation_freq` leave epochs without
    it. `ModelCheckpoint(save_best_only=True)` of Keras 3 saves in these, over
    the best model, and fails if the value is part of a file's name.
    `EarlyStopping` warns. A name that is never logged is left to Keras.
    """
    logged = set(_logged_by_model(model, is_validated) or ())
    prefixes: tuple[str, ...] = ()

    def if_logged(
        callback: Any, read: set[str], epoch: int, logs: Any = None
    ) -> None:
        if read <= set(logs or ()):
            type(callback).on_epoch_end(callback, epoch, logs)

    with ExitStack() as exits:
        for callback in _flat(callbacks):
            read = _read_by(callback)
            if read and all(
                x in logged or x.startswith(prefixes) for x in read
            ):
                callback.on_epoch_end = partial(if_logged, callback, read)
                exits.callback(delattr, callback, "on_epoch_end")
            names = getattr(callback, "logged_names", ())
            if names is None and hasattr(callback, "prefix"):
                prefixes += (callback.prefix,)  # Its data are not read yet.
            logged.update(names or ())
        yield


def any_measures_embeddings(callbacks: Any) -> bool:
    """Whether a callback evaluates, and so notices a collapse itself."""
    return any(
        getattr(x, "measures_embeddings", False) for x in _flat(callbacks)
    )


def _read_by(callback: keras.callbacks.Callback) -> set[str]:
    """What a callback of Keras reads from the logs of an epoch."""
    if type(callback) is keras.callbacks.EarlyStopping:
        return {callback.monitor}
    if type(callback) is not keras.callbacks.ModelCheckpoint:
        return set()
    fields = {x for _, x, _, _ in Formatter().parse(callback.filepath) if x}
    monitor = {callback.monitor} if callback.save_best_only else set()
    return (fields | monitor) - {"epoch", "batch"}


def _logged_by_model(
    model: keras.Model, is_validated: bool
) -> frozenset[str] | None:
    # Metrics of `compile` are one object until they are built.
    is_known = all(type(x) is keras.metrics.Mean for x in model.metrics)
    if not is_known or _author(model) != "keras_dml":
        return None
    names = frozenset(x.name for x in model.metrics)
    return names | {f"val_{x}" for x in names} if is_validated else names


def _logged_by(
    callback: keras.callbacks.Callback, model: keras.Model
) -> frozenset[str] | None:
    is_own = isinstance(callback, keras.callbacks.LambdaCallback)
    if is_own or _author(callback) not in ("keras", "keras_dml"):
        return None
    if isinstance(callback, _LOGGING_RATES):
        several = getattr(model.optimizer, "optimizers", ())
        rates = [f"learning_rate_{x.name}" for x in several]
        return frozenset(rates or ["learning_rate"])
    names: frozenset[str] | None = getattr(
        callback, "logged_names", frozenset()
    )
    return names


def _author(thing: Any) -> str:
    """The package that defines an object's class."""
    return type(thing).__module__.partition(".")[0]
