"""LossWeighting: how the terms of an objective are weighted."""

from typing import Any

import keras
from keras import ops

from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.types import Config, Tensor, Tensors

Schedule = keras.optimizers.schedules.LearningRateSchedule


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
            2018, Eq. 10, with the factors 1/2 omitted).
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
        given = weights or {}
        self.terms = terms
        self.given = {name: given.get(name, 1.0) for name in terms}
        self.weights_by_term: dict[str, keras.Variable] = {}
        for name in given:
            if name not in terms:
                raise ValueError(
                    "`loss_weights` of MetricModel must name terms of its "
                    f"objective, {list(terms)}. Received: {name!r}."
                    f"{did_you_mean(name, terms)}"
                )
        for name, weight in self.given.items():
            self._add(name, weight)
        self.built = True

    def _add(self, name: str, weight: Any) -> None:
        if isinstance(weight, Schedule):
            return
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
        return sum(
            self._weighted(name, value, step) for name, value in values.items()
        )

    def _weighted(self, name: str, value: Tensor, step: Tensor) -> Tensor:
        weight = self.given[name]
        if isinstance(weight, Schedule):
            return ops.cast(weight(step), value.dtype) * value
        variable = self.weights_by_term[name]
        if weight == "learned":
            return ops.exp(-variable) * value + variable
        return variable * value

    def serialized_weights(self) -> Config:
        """The weights as given to the constructor, for a model's config."""
        return {
            name: keras.saving.serialize_keras_object(weight)
            for name, weight in self.given.items()
        }
