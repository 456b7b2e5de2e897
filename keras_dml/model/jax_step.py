"""The train and test steps of a `MetricModel` on JAX.

Keras passes the state to a step, which returns the new one. Within a scope,
variables have the values of that state and `assign` changes them there, so all
backends share the code of everything but the gradient. Under
`keras.distribution`, a batch that is spread over devices is one array, so
pairs, memories and statistics are the same as on one device.
"""

from collections.abc import Iterable
from typing import Any

import keras

# `jax` is imported when it is used.
from keras.src.utils.module_utils import jax

from keras_dml.data.feature_set import FEATURES, features_key
from keras_dml.model.accumulation import check_added_losses
from keras_dml.model.checks import targets_of
from keras_dml.model.update import (
    RowsGradient,
    log_batch,
    loss_of,
    remember,
)
from keras_dml.utils.types import Tensor, Tensors

State = tuple[list[Tensor], ...]
"""Values of the trainable, non-trainable and other variables of a step."""

Pair = tuple[keras.Variable, Tensor]
"""A variable and its value."""


def train(model: Any, state: State, data: Any) -> tuple[Tensors, State]:
    """Updates the state by a batch; returns the logs and the new state.

    The state has the values of `trainable_variables`,
    `non_trainable_variables`, and the variables of the optimizer and of the
    metrics.
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    trainable, non_trainable, *rest = state
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )

    tables = [sampled.table for sampled in model.sampled_rows]

    def scaled_loss(values: list[Tensor]) -> tuple[Tensor, Any]:
        with _Scope(_pairs(groups, (values, non_trainable, *rest))) as scope:
            for table in tables:
                table.rows_read = []
            targets = model.objective.completed(x, targets_of(y))
            outputs = _outputs(model, x, scope)
            terms = model.objective(outputs, targets)
            loss = loss_of(model, terms, sample_weight)
            scaled = model.optimizer.scale_loss(loss)
            read = [table.rows_read for table in tables]
            for table in tables:
                table.rows_read = None
        results = (outputs, targets, terms, loss, read)
        return scaled, (scope.values_of(groups[1]), results)

    gradient_of = jax.value_and_grad(scaled_loss, has_aux=True)
    (_, (non_trainable, results)), gradients = gradient_of(trainable)
    outputs, targets, terms, loss, read = results
    rows_of = dict(zip(map(id, tables), read, strict=True))
    if features_key(x) == FEATURES:  # Features bypass the backbone.
        rows_of |= {id(v): [] for v in model.backbone.trainable_variables}
    gradients = [
        _of_rows(gradient, rows_of[id(v)]) if id(v) in rows_of else gradient
        for v, gradient in zip(groups[0], gradients, strict=True)
    ]
    with _Scope(_pairs(groups, (trainable, non_trainable, *rest))) as scope:
        active = model.objective.active_learner(targets)
        model.apply_update(gradients, groups[0], active)
        remember(model, outputs, targets)
        logs = log_batch(model, loss, terms, x, targets, outputs, sample_weight)
    return logs, tuple(map(scope.values_of, groups))


def test(model: Any, state: State, data: Any) -> tuple[Tensors, State]:
    """Adds a held-out batch to the state; returns the logs and the new state.

    The state has the values of `trainable_variables`, `non_trainable_variables`
    and the variables of the metrics.
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.metrics_variables,
    )
    with _Scope(_pairs(groups, state)) as scope:
        targets = model.objective.completed(x, targets_of(y))
        outputs = model.outputs_of(x, training=False)
        terms = model.objective.evaluate(outputs, targets)
        loss = loss_of(model, terms, sample_weight)
        logs = log_batch(model, loss, terms, x, targets, outputs, sample_weight)
    return logs, tuple(map(scope.values_of, groups))


def _pairs(
    groups: Iterable[list[keras.Variable]], values: Iterable[list[Tensor]]
) -> list[Pair]:
    return [
        pair
        for variables, group_values in zip(groups, values, strict=True)
        for pair in zip(variables, group_values, strict=True)
    ]


def _of_rows(gradient: Tensor, read: list[Tensor]) -> Any:
    """The gradient of the rows that were read; None if none were."""
    if not read:
        return None
    if len(read) > 1:  # The update raises an error for all rows.
        return gradient
    return RowsGradient(gradient[read[0]], read[0])


class _Scope(keras.StatelessScope):
    """Scope in which variables have given values; it collects added losses."""

    def __init__(self, pairs: list[Pair]) -> None:
        super().__init__(state_mapping=pairs, collect_losses=True)
        self.pairs = pairs

    def values_of(self, variables: list[keras.Variable]) -> list[Tensor]:
        """The values that variables have by now."""
        return [self.get_current_value(v) for v in variables]


def _outputs(model: Any, x: Any, scope: _Scope) -> Tensors:
    """The outputs for a batch, embedded in `model.accumulate` parts.

    For the gradient, only the inputs of a part are kept, and it is embedded
    again. `PartsOfBatch` is the counterpart on TensorFlow.
    """
    if model.accumulate == 1:
        outputs: Tensors = model.outputs_of(x, training=True)
        return outputs
    layers = [model.backbone, model.head]
    states = [v for layer in layers for v in layer.non_trainable_variables]
    size = len(jax.tree.leaves(x)[0])
    rows = -(-size // model.accumulate)
    parts = -(-size // rows)

    def embed(values: list[Tensor], first: Tensor) -> tuple[Any, Tensors]:
        part = jax.tree.map(
            lambda x: jax.lax.dynamic_slice_in_dim(x, first, rows), x
        )
        state_pairs = zip(states, values, strict=True)
        with _Scope([*scope.pairs, *state_pairs]) as inner:
            part_outputs = model.outputs_of(part, training=True)
            check_added_losses(layers, "accumulate", "1", "accumulate=1")
        return inner.values_of(states), part_outputs

    # The last part may begin with rows of the one before; they are dropped.
    firsts = jax.numpy.minimum(rows * jax.numpy.arange(parts), size - rows)
    values, part_outputs = jax.lax.scan(
        jax.checkpoint(embed), scope.values_of(states), firsts
    )
    for variable, value in zip(states, values, strict=True):
        variable.assign(value)
    before, repeated = (parts - 1) * rows, parts * rows - size

    def whole(x: Tensor) -> Tensor:
        x = x.reshape(-1, *x.shape[2:])
        return jax.numpy.concatenate([x[:before], x[before + repeated :]])

    joined: Tensors = jax.tree.map(whole, part_outputs)
    return joined
