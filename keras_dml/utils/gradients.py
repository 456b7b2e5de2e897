"""Analytic gradients, in place of those of automatic differentiation."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_dml.utils.types import Tensor


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`keras.ops.custom_gradient`, for all backends, variables included.

    TensorFlow takes a variable among the arguments for one that the
    function has captured, and rejects it. On PyTorch the gradient is called
    with the arguments, too.

    Args:
        function: `(*tensors) -> (value, gradient)`, with
            `gradient(upstream)` the gradient by each tensor.
    """

    def with_any_call(*tensors: Tensor) -> Any:
        value, gradient = function(*tensors)

        def by_each(*arguments: Tensor, upstream: Tensor | None = None) -> Any:
            return gradient(arguments[0] if upstream is None else upstream)

        return value, by_each

    differentiable = ops.custom_gradient(with_any_call)

    @functools.wraps(function)
    def wrapper(*tensors: Tensor) -> Tensor:
        return differentiable(*(ops.copy(tensor) for tensor in tensors))

    return wrapper


def with_gradient(total: Tensor, slopes: Tensor, x: Tensor) -> Tensor:
    """`total`, (B,), with an analytic gradient by `x`, (B, R).

    No gradient passes where `total` was computed; `slopes`, (B, R), are the
    derivatives of each value by its row of `x`.
    """

    @custom_gradient
    def attach(total: Tensor, slopes: Tensor, x: Tensor) -> Any:
        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            by_x = upstream[:, None] * slopes
            return ops.zeros_like(total), ops.zeros_like(slopes), by_x

        return ops.copy(total), gradient

    return attach(total, slopes, x)


NOISE_NORM = 1e-2
"""Length below which the direction of a row is taken as noise."""

_SMALLEST_NORMAL = 2.0**-126  # Of float32, without denormal numbers.

_MAX_SQUARABLE = 2.0**50  # Sums of squares of larger values may leave float32.


def l2_normalize(x: Tensor) -> Tensor:
    """Rows of unit length, along the last axis; a zero row stays zero.

    The gradient is inversely proportional to the length of a row, but not
    larger than at the length `NOISE_NORM`, so that a row of nearly zero cannot
    outweigh all others. That of a zero row is the incoming one. A symbolic
    tensor, with which `EmbeddingModel.encoder` records the operations of Keras
    alone, has the gradient of these, which has no such bound, and where a row
    longer than 1e19 becomes zero.

    Args:
        x: (..., D), computed in float32 if in half precision.

    Returns:
        The same shape and dtype.
    """

    @custom_gradient
    def normalize(x: Tensor) -> Any:
        largest = ops.max(ops.abs(x), axis=-1, keepdims=True)
        ones = ops.ones_like(largest)  # They change no digit.
        factor = ops.where(largest > _MAX_SQUARABLE, _MAX_SQUARABLE**-1.5, ones)
        x = x * factor
        squared = ops.sum(ops.square(x), axis=-1, keepdims=True)
        scale = ops.rsqrt(ops.where(squared < _SMALLEST_NORMAL, 1.0, squared))
        unit = x * scale

        def gradient(upstream: Tensor) -> Tensor:
            radial = ops.sum(upstream * unit, axis=-1, keepdims=True)
            return (upstream - unit * radial) * ops.minimum(
                scale * factor, 1 / NOISE_NORM
            )

        return unit, gradient

    if isinstance(x, keras.KerasTensor):
        # One operation: files of models count the operations of `encoder`.
        return ops.normalize(x, axis=-1, epsilon=1e-12)
    x = ops.convert_to_tensor(x)
    dtype = keras.backend.standardize_dtype(x.dtype)
    wide = ops.cast(x, keras.backend.result_type(dtype, "float32"))
    return ops.cast(normalize(wide), dtype)
