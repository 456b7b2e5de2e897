"""Custom gradients: analytic ones, in place of automatic differentiation."""

import functools
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_dml.utils.types import Tensor


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`keras.ops.custom_gradient`, for all backends, variables included.

    TensorFlow takes a variable among the arguments for one that the
    function has captured, and refuses it. On PyTorch the gradient is called
    with the arguments, too.

    Args:
        function: `(*tensors) -> (value, gradient)`, with
            `gradient(upstream)` the gradient by each tensor.
    """

    def with_any_call(*tensors: Tensor) -> Any:
        value, gradient = function(*tensors)

        def by_each(*given: Tensor, upstream: Tensor | None = None) -> Any:
            return gradient(given[0] if upstream is None else upstream)

        return value, by_each

    differentiable = ops.custom_gradient(with_any_call)

    @functools.wraps(function)
    def wrapped(*tensors: Tensor) -> Tensor:
        return differentiable(*(ops.copy(tensor) for tensor in tensors))

    return wrapped


def with_gradient(total: Tensor, slopes: Tensor, x: Tensor) -> Tensor:
    """`total` with an analytic gradient.

    Args:
        total: (B,) values computed from `x` where no gradient passes.
        slopes: (B, R) derivative of each value by its row of `x`.
        x: (B, R).
    """

    @custom_gradient
    def attached(total: Tensor, slopes: Tensor, x: Tensor) -> Any:
        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            by_x = upstream[:, None] * slopes
            return ops.zeros_like(total), ops.zeros_like(slopes), by_x

        return ops.copy(total), gradient

    return attached(total, slopes, x)
