"""Gradients that are written out and not derived."""

import functools
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_dml.utils.types import Tensor


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """`keras.ops.custom_gradient`, for variables as well as tensors.

    TensorFlow takes a variable among the arguments for one that the
    function has captured, and refuses it.

    Args:
        function: `(*tensors) -> (value, gradient)`, with
            `gradient(upstream)` the gradient by each tensor.
    """
    differentiable = ops.custom_gradient(function)

    @functools.wraps(function)
    def wrapped(*tensors: Tensor) -> Tensor:
        return differentiable(*(ops.copy(tensor) for tensor in tensors))

    return wrapped
