"""FunctionLoss: a function or a Keras loss as a metric loss."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_dml.losses.base import MetricLoss
from keras_dml.losses.composite import COMPOSITES
from keras_dml.losses.pairs import Batch
from keras_dml.utils.types import Tensor

_REDUCTIONS = ("sum_over_batch_size", "mean", "none", None, "sum")


@COMPOSITES.register("function")
class FunctionLoss(MetricLoss):
    r"""Function: a loss given as a function or as a Keras loss.

    `losses.get`, and therefore every method, wraps functions in this class. It
    does not support references or pair weights; for these, derive a class from
    `PairLoss`.

    $$
    \ell_i = f(y, x)_i
    $$

    for a function $f$ of all labels and embeddings in the batch.

    Labels:
        Any labels that the function takes.

    Args:
        function: A function of `(labels, embeddings)` that returns the loss of
            the batch, a scalar, or of every example, (B,). Or a
            `keras.losses.Loss`, whose `call` returns one of these, and whose
            `reduction` is applied.
        normalize: Whether to L2-normalize the embeddings first. Those of a
            `MetricModel` already have unit length.
        needs_positives: Whether the function needs at least two examples of the
            same class in a batch. If so, `fit` warns about batches without
            them.
        name: Name of the instance; by default that of the function.

    Raises:
        ValueError: If `function` is not callable, or is a Keras loss with a
            reduction other than mean, sum or none.

    Also known as:
        None of the compared libraries has an equivalent.

    Example:
        `FunctionLoss(lambda y, x: keras.ops.mean(x**2))(labels, embeddings)`

    Requirements:
        To save a model with this loss, the function must be known to Keras:
        decorate it with `keras.saving.register_keras_serializable`.
    """

    takes_references = False

    def __init__(
        self,
        function: Callable[..., Any] | keras.losses.Loss,
        normalize: bool = False,
        needs_positives: bool = True,
        name: str | None = None,
    ) -> None:
        name = name or getattr(function, "__name__", None)
        name = name or getattr(function, "name", None)
        super().__init__(
            normalize=normalize, name=None if name == "<lambda>" else name
        )
        if not callable(function):
            raise ValueError(
                "`function` of FunctionLoss must be a function of labels and "
                f"embeddings, or a Keras loss. Received: {function!r}."
            )
        self.function = function
        self.needs_positives = needs_positives
        self._is_sum = False
        if isinstance(function, keras.losses.Loss):
            if function.reduction not in _REDUCTIONS:
                raise ValueError(
                    "`function` of FunctionLoss must have one of the "
                    f"reductions {_REDUCTIONS}. Received: {function!r} with "
                    f"reduction={function.reduction!r}."
                )
            self._is_sum = function.reduction == "sum"

    def call(self, batch: Batch) -> Tensor:
        if any(value is not None for value in batch[2:]):
            raise ValueError(
                f"The function {self.name!r} only takes labels and embeddings, "
                "without references or pair weights. To use these, derive a "
                "loss from `keras_dml.losses.PairLoss` instead."
            )
        function: Callable[..., Any] = self.function
        if isinstance(function, keras.losses.Loss):
            function = function.call
        values = ops.convert_to_tensor(function(batch.labels, batch.embeddings))
        values = ops.cast(values, "float32")
        size = ops.shape(batch.embeddings)[0]
        if len(values.shape) == 0:
            return ops.broadcast_to(values, (size,))
        if len(values.shape) != 1:
            raise ValueError(
                f"The function {self.name!r} must return a scalar, or one "
                "value per example, (B,). Received: a result of shape "
                f"{tuple(values.shape)}."
            )
        return values * ops.cast(size, "float32") if self._is_sum else values
