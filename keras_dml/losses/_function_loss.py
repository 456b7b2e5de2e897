"""FunctionLoss: a function, or a loss of Keras, as a metric loss."""

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
    r"""Function: a loss that is a function, or a loss of Keras.

    `losses.get`, and with it every method, makes one of a function. It
    cannot be compared with references, nor weight pairs: derive a class
    from `PairLoss` for that.

    $$
    \ell_i = f(y, x)_i
    $$

    for a function $f$ of all labels and embeddings of the batch.

    Labels:
        Whatever the function takes.

    Args:
        function: `(labels, embeddings)` → the loss of the batch, a scalar,
            or of every example, (B,). Or a `keras.losses.Loss`, whose
            `call` gives these, and whose `reduction` holds.
        normalize: Whether to L2-normalize the embeddings first. Those of
            a `MetricModel` are unit anyway.
        needs_positives: Whether a batch teaches the function nothing in
            which no two examples have the same class. If so, `fit` warns of
            such batches.
        name: Name of the instance; by default that of the function.

    Raises:
        ValueError: If `function` cannot be called, or is a loss of Keras
            with a reduction other than a mean, a sum, or none.

    Also known as:
        No library that this one is compared with has it.

    Example:
        `FunctionLoss(lambda y, x: keras.ops.mean(x**2))(labels, embeddings)`

    Requirements:
        A model with the loss can be saved if Keras knows the function:
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
                f"The function {self.name!r} takes labels and embeddings, and "
                "neither references nor weights of pairs. Derive a loss from "
                "`keras_dml.losses.PairLoss` instead."
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
                f"The function {self.name!r} must return a scalar, or a "
                "value for each example, (B,). Received: a result of shape "
                f"{tuple(values.shape)}."
            )
        return values * ops.cast(size, "float32") if self._is_sum else values
