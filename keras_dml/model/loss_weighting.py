"""LossWeighting: how the terms of an objective are weighted."""

import math
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule as Schedule

from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.serialization import Serializable, register
from keras_dml.utils.types import Tensor, Tensors

_LATE_STEPS = (10**9, 2 * 10**9)
"""Steps at which a schedule that ever stops changing has its last value."""


@register
class ScaledSchedule(Serializable):
    """A weight that changes over time as a schedule does.

    It is the schedule, divided by its last value, times `weight`: a number, or
    "learned".
    """

    def __init__(self, schedule: Schedule, weight: float | str) -> None:
        self.schedule = schedule
        self.weight = weight
        self._last = _value(schedule, _LATE_STEPS[0])

    def share(self, step: Tensor) -> Tensor:
        """The value at a step over the last one, float32."""
        return ops.cast(self.schedule(step) / self._last, "float32")


def weights_with(
    defaults: Mapping[str, Any], overrides: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Default weights of terms, overridden by those of a user.

    Where the default is a schedule, a number or "learned" only replaces its
    last value: what starts late still does. Another schedule replaces it.
    """
    weights = {**defaults, **(overrides or {})}
    for name, default in defaults.items():
        if isinstance(default, ScaledSchedule):
            default = default.schedule
        weight = weights[name]
        is_constant = weight == "learned" or isinstance(weight, int | float)
        if isinstance(default, Schedule) and is_constant:
            _check_end(name, default, weight)
            weights[name] = ScaledSchedule(default, weight)
    return weights


def _check_end(name: str, schedule: Schedule, weight: Any) -> None:
    ends = [_value(schedule, step) for step in _LATE_STEPS]
    if not math.isclose(*ends, rel_tol=1e-3) or not ends[0]:
        raise ValueError(
            "A number in `loss_weights` of MetricModel scales the schedule of "
            "its term to end there, so the schedule must end at a value other "
            f"than 0. Received: loss_weights[{name!r}]={weight!r}, for a "
            f"schedule that goes on to {ends[1]:.3g}. Use a "
            "LearningRateSchedule, or change the weight where that of this "
            "term is given."
        )


def _value(schedule: Schedule, step: int) -> float:
    return float(ops.convert_to_numpy(schedule(step)))


class LossWeighting(keras.layers.Layer):
    """The weighted sum of named terms.

    Args:
        terms: Names of the terms.
        weights: Weight of each term by name; terms without one have weight 1.
            A number is kept in a variable, which callbacks may set during
            training (`model.weighting.weights_by_term["name"].assign(0.5)`); a
            `LearningRateSchedule` is a function of the step; "learned" stands
            for uncertainty weighting: exp(−s)·term + s with a trainable s
            (Kendall et al., "Multi-Task Learning Using Uncertainty", CVPR
            2018, Eq. 10, with the factors 1/2 omitted). A `ScaledSchedule`
            multiplies either by a function of the step that ends at 1.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        values: Dict of (B,) terms.
        step: Scalar, the number of updates so far.

    Returns:
        (B,), the weighted sum.

    Raises:
        ValueError: If a name is not that of a term, or a weight has another
            type.
    """

    def __init__(
        self,
        terms: tuple[str, ...],
        weights: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype="float32", **kwargs)
        weights = weights or {}
        self.terms = terms
        self.term_weights = {name: weights.get(name, 1.0) for name in terms}
        self.weights_by_term: dict[str, keras.Variable] = {}
        for name in weights:
            if name not in terms:
                raise ValueError(
                    "`loss_weights` of MetricModel must name terms of its "
                    f"objective, {list(terms)}. Received: {name!r}."
                    f"{did_you_mean(name, terms)}"
                )
        for name, weight in self.term_weights.items():
            self._add(name, weight)
        self.built = True

    def _add(self, name: str, weight: Any) -> None:
        if isinstance(weight, Schedule):
            return
        if isinstance(weight, ScaledSchedule):
            weight = weight.weight
        learned = weight == "learned"
        if not learned and not isinstance(weight, int | float):
            raise ValueError(
                "`loss_weights` of MetricModel must contain numbers, "
                'LearningRateSchedules, or "learned". Received: '
                f"loss_weights[{name!r}]={weight!r}."
            )
        self.weights_by_term[name] = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(0 if learned else weight),
            trainable=learned,
            name=f"loss_weights_{name}",
        )

    def call(self, values: Tensors, step: Tensor) -> Tensor:
        if set(values) != set(self.terms):
            raise ValueError(
                "An objective must return exactly the terms named in its "
                "`terms`, "
                f"{list(self.terms)}. Received: {list(values)}. With several "
                "losses, `loss.term_values` returns all of them and "
                "`loss.per_example` their sum; see `LossObjective`."
            )
        total: Any = 0.0
        for name, value in values.items():
            share, weight = self._at(name, step)
            total += share * weight * value
            if self._is_learned(name):
                total += share * self.weights_by_term[name]
        return total

    def weight_at(self, name: str, step: Tensor) -> Tensor:
        """The factor of a term after a number of updates."""
        share, weight = self._at(name, step)
        return share * weight

    def _at(self, name: str, step: Tensor) -> tuple[Any, Any]:
        """The share of a weight that counts at a step, and the weight."""
        weight = self.term_weights[name]
        if isinstance(weight, Schedule):
            return 1.0, ops.cast(weight(step), "float32")
        is_scaled = isinstance(weight, ScaledSchedule)
        variable = self.weights_by_term[name]
        learned = self._is_learned(name)
        return (
            weight.share(step) if is_scaled else 1.0,
            ops.exp(-variable) if learned else variable,
        )

    def _is_learned(self, name: str) -> bool:
        weight = self.term_weights[name]
        if isinstance(weight, ScaledSchedule):
            weight = weight.weight
        return bool(weight == "learned")
