"""Optimizers with coupled weight decay, as PyTorch has it."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_dml.utils.patterns import matches
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor

_ARGUMENT = "`decay_multipliers` of an optimizer with coupled decay"


class CoupledDecay:
    """Makes the weight decay of a Keras optimizer coupled.

    A mixin, to stand before an optimizer among the bases of a class. The
    `weight_decay` λ of a Keras optimizer is decoupled: it takes η·λ·w off a
    weight, past the optimizer. Here λ·w is added to the gradient, L2
    regularization, and goes through the optimizer's moments, as
    `weight_decay` does in PyTorch's Adam, SGD and RMSprop. Both come after
    gradient clipping. `exclude_from_weight_decay` holds for either.

    Args:
        *args: Those of the Keras optimizer.
        decay_multipliers: What λ is multiplied with for every variable whose
            path the regular expression matches; the first that matches
            counts. As `rate_multipliers` of a `MetricModel`.
        **kwargs: Those of the Keras optimizer.

    Raises:
        ValueError: If a multiplier is negative or there is no decay to
            multiply, or, in `build`, if a pattern matches no variable.

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
        for pattern in self.decay_multipliers:
            if not any(matches(pattern, v.path) for v in variables):
                raise ValueError(
                    f"{_ARGUMENT} must be patterns that match the path of a "
                    f"variable. Received: {pattern!r}, which matches none of "
                    f"{len(variables)}. Paths are for instance "
                    f"{variables[0].path!r} and {variables[-1].path!r}."
                )
        super().build(variables)  # type: ignore[misc]

    def _decay_of(self, variable: Any) -> float:
        """λ of a variable; 0 where it has no decay."""
        optimizer: Any = self
        decay = optimizer.weight_decay
        if not (decay and optimizer._use_weight_decay(variable)):
            return 0.0
        # An update is given TensorFlow's variable, which has no path.
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
