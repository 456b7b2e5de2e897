"""Optimizers with coupled weight decay, as PyTorch has it."""

from typing import Any

import keras
from keras import ops

from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


class CoupledDecay:
    """Makes the weight decay of a Keras optimizer coupled.

    A mixin, to stand before an optimizer among the bases of a class. The
    `weight_decay` λ of a Keras optimizer is decoupled: it takes η·λ·w off a
    weight, past the optimizer. Here λ·w is added to the gradient, L2
    regularization, and goes through the optimizer's moments, as
    `weight_decay` does in PyTorch's Adam, SGD and RMSprop. Both come after
    gradient clipping. `exclude_from_weight_decay` holds for either.

    Reference:
        Loshchilov and Hutter, "Decoupled Weight Decay Regularization",
        ICLR 2019, Algorithm 2, line 6.
    """

    def update_step(
        self, gradient: Tensor, variable: Any, learning_rate: Tensor
    ) -> None:
        optimizer: Any = self
        if optimizer.weight_decay and optimizer._use_weight_decay(variable):
            weight = ops.convert_to_tensor(variable)
            gradient = ops.add(
                ops.cast(gradient, weight.dtype),
                ops.multiply(weight, optimizer.weight_decay),
            )
        super().update_step(  # type: ignore[misc]
            gradient, variable, learning_rate
        )

    def _apply_weight_decay(self, variables: list[Any]) -> None:
        """Where Keras applies the decoupled decay: there is none."""


@register
class CoupledAdam(CoupledDecay, keras.optimizers.Adam):
    """`keras.optimizers.Adam` with coupled weight decay.

    Deviations:
        - ε stands where Keras has it, beside the square root of the
          uncorrected second moment; in PyTorch's Adam beside that of the
          corrected one.
    """


@register
class CoupledRMSprop(CoupledDecay, keras.optimizers.RMSprop):
    """`keras.optimizers.RMSprop` with coupled weight decay."""


@register
class CoupledSGD(CoupledDecay, keras.optimizers.SGD):
    """`keras.optimizers.SGD` with coupled weight decay."""


COUPLED: dict[str, type[keras.Optimizer]] = {
    "adam": CoupledAdam,
    "rmsprop": CoupledRMSprop,
    "sgd": CoupledSGD,
}
"""The optimizers with coupled decay by the names of those without."""
