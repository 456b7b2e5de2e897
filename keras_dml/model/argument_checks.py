"""Checks of the arguments of `MetricModel` and its `compile`."""

from typing import Any

import keras

from keras_dml.data.view import View


def check_backend() -> None:
    """Raises `RuntimeError` on a backend that cannot train models."""
    if keras.backend.backend() not in ("tensorflow", "jax"):
        raise RuntimeError(
            "MetricModel trains on the backends tensorflow and jax only. "
            f"Received: the backend {keras.backend.backend()!r}. Set the "
            "environment variable KERAS_BACKEND=tensorflow, or =jax, before "
            "importing Keras. On other backends, models can embed, be "
            "evaluated and be searched, and losses can train your own "
            "`keras.Model` with `compile(loss=…)`."
        )


def check_compiled(arguments: dict[str, Any]) -> None:
    """Checks that `compile` gets no losses and no classification metrics.

    Raises:
        ValueError: If `loss` or `loss_weights` is given, or a metric is given
            by name.
    """
    for name in ("loss", "loss_weights"):
        if arguments.get(name) is not None:
            raise ValueError(
                f"`{name}` is not an argument of MetricModel.compile: the "
                "objective holds the losses, and `loss_weights` is an "
                "argument of the constructor. Received: "
                f"{name}={arguments[name]!r}. Use `methods.baseline(backbone, "
                "loss=…)` and `model.compile(optimizer)`."
            )
    for name in ("metrics", "weighted_metrics"):
        for metric in keras.tree.flatten(arguments.get(name) or []):
            if isinstance(metric, str):
                raise ValueError(
                    f"`{name}` of MetricModel.compile must not contain names: "
                    "metrics given by name compare class predictions, and "
                    f"this model predicts embeddings. Received: {metric!r}. "
                    "Use a function of (labels, embeddings), a "
                    "keras.metrics.Metric, or, for retrieval, "
                    "`callbacks.RetrievalEvaluation`."
                )


def check_momentum(ema_momentum: float | None, momentum_scale: float) -> None:
    """Raises `ValueError` for a scale without a momentum network."""
    if ema_momentum is None and momentum_scale != 1:
        raise ValueError(
            "`momentum_scale` of MetricModel requires a momentum network. "
            f"Received: momentum_scale={momentum_scale!r} and "
            "ema_momentum=None. Set `ema_momentum`, for diva by the task "
            '"dance", or leave `momentum_scale` out.'
        )


def check_terms(terms: tuple[str, ...]) -> None:
    """Raises `ValueError` if terms cannot be told apart in the logs."""
    repeated = {name for name in terms if terms.count(name) > 1}
    if repeated or "loss" in terms:
        raise ValueError(
            "Terms of an objective must have different names, and none may be "
            "called "
            '"loss", which is the name of their sum. Received: '
            f"{list(terms)}. Rename the losses."
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
            "backbone's input. "
            f"Received: view={view}, input {expected}. Use View((height, "
            "width), channels, …), or omit it if the input is not an image."
        )


def check_channels_last(model: Any, x: Any, name: str, owner: str) -> None:
    """Raises `ValueError` for images, (3, H, W), of a model of RGB images.

    They would be taken for three gray images.

    Args:
        model: A model.
        x: The argument `name` of `owner`, of any kind, or with labels, (x, y).
        name: The argument.
        owner: The function that has it.
    """
    if isinstance(x, tuple) and x:
        x, name = x[0], f"{name}[0]"
    expected: Any = getattr(model, "input_shape", None)
    shape: tuple[int, ...] = getattr(x, "shape", ())
    is_rgb = isinstance(expected, tuple) and expected[3:] == (3,)
    is_first = len(shape) in (3, 4) and shape[-3] == 3 and shape[-1] != 3
    if is_rgb and is_first and shape[-1] != 1:
        raise ValueError(
            f"`{name}` of {owner} must be images with channels last, (H, W, "
            f"C). Received: shape {tuple(shape)}. Use numpy.moveaxis({name}, "
            "-3, -1); for three gray images, add an axis: (3, H, W, 1)."
        )
