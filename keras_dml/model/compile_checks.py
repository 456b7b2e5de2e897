"""Checks of what `compile` is given."""

from typing import Any

import keras


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


def check_arguments(arguments: dict[str, Any]) -> None:
    """Checks that there are no losses, and no metrics of classes.

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
