"""Checks of what a `MetricModel` and its `compile` are given."""

from typing import Any

import keras

from keras_dml.data.view import View


def check_backend() -> None:
    """Raises `RuntimeError` on a backend that models do not train on."""
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "MetricModel trains on the TensorFlow backend. Received: the "
            f"backend {keras.backend.backend()!r}. Set the environment "
            "variable KERAS_BACKEND=tensorflow before Keras is imported. "
            "On other backends models embed, are evaluated and searched, "
            "and losses train in your own `keras.Model` by "
            "`compile(loss=…)`."
        )


def check_compiled(arguments: dict[str, Any]) -> None:
    """Checks that `compile` gets no losses, and no metrics of classes.

    Raises:
        ValueError: If `loss` or `loss_weights` are given, or a metric is a
            name.
    """
    for name in ("loss", "loss_weights"):
        if arguments.get(name) is not None:
            raise ValueError(
                f"`{name}` is not for MetricModel.compile: its objective "
                "holds the losses, and `loss_weights` is an argument of "
                f"its constructor. Received: {name}={arguments[name]!r}. "
                "Use `methods.baseline(backbone, loss=…)` and "
                "`model.compile(optimizer)`."
            )
    for name in ("metrics", "weighted_metrics"):
        for metric in keras.tree.flatten(arguments.get(name) or []):
            if isinstance(metric, str):
                raise ValueError(
                    f"A name in `{name}` is not for MetricModel.compile: "
                    "metrics by name compare predictions of classes, and "
                    f"this model predicts embeddings. Received: {metric!r}"
                    ". Use a function of (labels, embeddings), a "
                    "keras.metrics.Metric, or for retrieval "
                    "`callbacks.RetrievalEvaluation`."
                )


def check_terms(terms: tuple[str, ...]) -> None:
    """Raises `ValueError` if terms cannot be told apart in logs."""
    repeated = {name for name in terms if terms.count(name) > 1}
    if repeated or "loss" in terms:
        raise ValueError(
            "Terms of an objective must have different names, none of them "
            f'"loss", the name of their sum. Received: {list(terms)}. Give '
            "the losses other names."
        )


def check_view(view: View | None, backbone: keras.Model) -> None:
    """Raises `ValueError` if a view does not fit a backbone's input."""
    if view is None:
        return
    shape = backbone.input_shape
    expected = shape[1:] if isinstance(shape, tuple) else shape
    if (*view.size, view.channels) != expected:
        raise ValueError(
            "`view` of MetricModel must have the size and channels of its "
            f"backbone's input. Received: view={view}, input {expected}. "
            "Use View((height, width), channels, …), or leave it out where "
            "the input is no image."
        )
