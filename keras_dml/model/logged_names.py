"""Names in the logs of an epoch, known before the first epoch."""

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
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    names = _logged_by_model(model, is_validated)
    for callback in keras.tree.flatten(callbacks or []):
        if names is None:
            return
        if hasattr(callback, "check_logged"):
            callback.check_logged(names)
        written = _logged_by(callback, model)
        names = None if written is None else names | written


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
