"""Optimizers with coupled weight decay, as in PyTorch."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import keras
from keras import ops

from keras_dml.utils.arguments import check_patterns, matches
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor

_ARGUMENT = "`decay_multipliers` of an optimizer with coupled decay"


@cache
def known_optimizers() -> dict[str, type[keras.Optimizer]]:
    """Keras' optimizers by their lower-case names."""
    return {
        name.lower(): value
        for name, value in vars(keras.optimizers).items()
        if isinstance(value, type) and issubclass(value, keras.Optimizer)
    }


class CoupledDecay:
    """A mixin that couples the weight decay of a Keras optimizer.

    Put it before an optimizer in the bases of a class. The `weight_decay` λ of
    a Keras optimizer is decoupled: it subtracts η·λ·w from a weight directly.
    Here, λ·w is added to the gradient (L2 regularization) and passes through
    the moments of the optimizer, like `weight_decay` in PyTorch's Adam, SGD and
    RMSprop. Both are applied after gradient clipping.
    `exclude_from_weight_decay` applies to both.

    Args:
        *args: Arguments of the Keras optimizer.
        decay_multipliers: Factors of λ for variables, by regular expressions
            that match their paths; the first match counts. See
            `rate_multipliers` of `MetricModel`.
        **kwargs: Arguments of the Keras optimizer.

    Raises:
        ValueError: If a multiplier is negative, if there is no decay to
            multiply, or, in `build`, if a pattern does not match any variable.

    Reference:
        Loshchilov and Hutter, "Decoupled Weight Decay Regularization",
        ICLR 2019, Algorithm 2, line 6.
    """

    def __init__(
        self,
        *args: Any,
        decay_multipliers: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.decay_multipliers = dict(decay_multipliers or {})
        optimizer: Any = self
        for pattern, multiplier in self.decay_multipliers.items():
            matches(pattern, "", _ARGUMENT)
            if multiplier < 0 or not optimizer.weight_decay:
                raise ValueError(
                    f"{_ARGUMENT} must be at least 0, and multiply a "
                    f"`weight_decay`. Received: {multiplier!r} for "
                    f"{pattern!r}, weight_decay={optimizer.weight_decay!r}."
                )

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        return {**config, "decay_multipliers": self.decay_multipliers}

    def build(self, variables: list[Any]) -> None:
        paths = [v.path for v in variables]
        check_patterns(self.decay_multipliers, paths, _ARGUMENT)
        super().build(variables)  # type: ignore[misc]

    def _decay_of(self, variable: Any) -> float:
        """λ of a variable; 0 if it does not decay."""
        optimizer: Any = self
        decay = optimizer.weight_decay
        if not (decay and optimizer._use_weight_decay(variable)):
            return 0.0
        # Keras passes TensorFlow's variable here, which does not have a path.
        index = optimizer._get_variable_index(variable)
        path = optimizer._trainable_variables[index].path
        for pattern, multiplier in self.decay_multipliers.items():
            if matches(pattern, path):
                return float(decay * multiplier)
        return float(decay)

    def update_step(
        self, gradient: Tensor, variable: Any, learning_rate: Tensor
    ) -> None:
        if decay := self._decay_of(variable):
            weight = ops.convert_to_tensor(variable)
            gradient = ops.add(
                ops.cast(gradient, weight.dtype),
                ops.multiply(weight, decay),
            )
        super().update_step(  # type: ignore[misc]
            gradient, variable, learning_rate
        )

    def _apply_weight_decay(self, variables: list[Any]) -> None:
        """Does nothing: Keras would apply the decoupled decay here."""


@register
class CoupledAdam(CoupledDecay, keras.optimizers.Adam):
    """`keras.optimizers.Adam` with coupled weight decay.

    Deviations:
        - As in Keras, ε is added to the square root of the uncorrected second
          moment; in PyTorch's Adam, it is added to that of the corrected one.
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
"""Optimizers with coupled decay, by the names of their Keras optimizers."""
