"""Names in the logs of an epoch, known before the first epoch."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from string import Formatter
from typing import Any

import keras

_LOGGING_RATES = (
    keras.callbacks.LearningRateScheduler,
    keras.callbacks.ReduceLROnPlateau,
)


def check_readers(
    model: keras.Model, callbacks: Any, is_validated: bool
) -> None:
    """Lets callbacks reject, before training, names that nothing will log.

    A callback that reads the logs has a method `check_logged(names)`; one that
    writes to them has a property `logged_names`, which is None if it cannot
    know. Only callbacks that precede a reader count. The reader is not asked
    if the model or a callback before it may log unknown names, which is the
    case if users have written it.

    Args:
        model: The model.
        callbacks: Callbacks as given to `fit`.
        is_validated: Whether `fit` has validation data.
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
    """Lets Keras's callbacks pass over epochs without the value they read.

    `RetrievalEvaluation(every=…)` and `validation_freq` leave epochs without
    it. `ModelCheckpoint(save_best_only=True)` of Keras 3 saves in these, over
    the best model, and fails if the value is part of a file's name.
    `EarlyStopping` warns. A name that is never logged is left to Keras.

    Args:
        model: The model.
        callbacks: Callbacks as given to `fit`.
        is_validated: Whether `fit` has validation data.
    """
    logged = set(_logged_by_model(model, is_validated) or ())
    prefixes: tuple[str, ...] = ()
    with ExitStack() as exits:
        for callback in _flat(callbacks):
            read = _read_by(callback)
            if read and all(
                x in logged or x.startswith(prefixes) for x in read
            ):
                callback.on_epoch_end = partial(_if_logged, callback, read)
                exits.callback(delattr, callback, "on_epoch_end")
            names = getattr(callback, "logged_names", ())
            if names is None and hasattr(callback, "prefix"):
                prefixes += (callback.prefix,)  # Of data not read yet.
            logged.update(names or ())
        yield


def any_measures_embeddings(callbacks: Any) -> bool:
    """Whether a callback evaluates, which tells of a collapse by itself."""
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


def _if_logged(
    callback: keras.callbacks.Callback,
    read: set[str],
    epoch: int,
    logs: Any = None,
) -> None:
    if read <= set(logs or ()):
        type(callback).on_epoch_end(callback, epoch, logs)


def _flat(callbacks: Any) -> list[keras.callbacks.Callback]:
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    flat: list[keras.callbacks.Callback] = keras.tree.flatten(callbacks or [])
    return flat


def _logged_by_model(
    model: keras.Model, is_validated: bool
) -> frozenset[str] | None:
    # Those of `compile` are one until they are built.
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
