"""Update: changes only the variables that may change, each at its own rate.

It also has what is the same in the steps of all backends, `tensorflow_step` and
`jax_step`, which compute the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_dml.distribution.gathering import (
    clip_sum,
    share_overflow,
)
from keras_dml.losses.sampled_classes import rows_at, write_rows
from keras_dml.utils.arguments import check_patterns, matches
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensor, Tensors

LOSS_VARIABLES = "/loss/"
"""The part of its path that marks a variable owned by a loss."""


def exempt_loss_variables(
    optimizer: keras.Optimizer, variables: list[keras.Variable]
) -> None:
    """Excludes the variables that losses own from weight decay."""
    owned = [v for v in variables if LOSS_VARIABLES in v.path]
    if not (owned and getattr(optimizer, "weight_decay", None)):
        return
    # Keras forgets earlier exclusions at every call, so they are found by
    # asking about each variable, and passed along.
    excluded = [v for v in variables if not optimizer._use_weight_decay(v)]
    optimizer.exclude_from_weight_decay(var_list=excluded + owned)


def slots_of(
    optimizer: keras.Optimizer, variable: keras.Variable
) -> list[keras.Variable]:
    """The optimizer's variables for one of a model, named after its path."""
    prefix = variable.path.replace("/", "_") + "_"
    return [s for s in optimizer.variables if s.name.startswith(prefix)]


def check_slots(
    optimizer: keras.Optimizer, variables: list[keras.Variable]
) -> None:
    """Raises `ValueError` if a slot cannot be traced to its variable by name.

    That is the case for the factored moments of Adafactor.
    """
    slot_ids = {id(s) for v in variables for s in slots_of(optimizer, v)}
    unknown = [
        s.path
        for s in optimizer.variables
        if s.shape != () and id(s) not in slot_ids
    ]
    if unknown:
        raise ValueError(
            "The optimizer of a model with alternating learners, or of a loss "
            "with `class_share`, must keep its state per variable, so that a "
            "step can leave other variables unchanged. "
            f"Received: {type(optimizer).__name__}, whose variables "
            f"{unknown[:3]} do not name the weight they belong to. Use Adam, "
            "AdamW, SGD, "
            'RMSprop, Lion or Muon, or update="all" and class_share=1.'
        )


def check_sampling(optimizer: keras.Optimizer) -> None:
    """Rejects options that make an optimizer update all rows of a table."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner is not optimizer and keras.backend.backend() == "jax":
        raise ValueError(
            "A loss with `class_share` cannot be trained on JAX by an "
            "optimizer that scales the loss. Received: "
            f"{type(optimizer).__name__}, which mixed_float16 asks for. Use "
            "mixed_bfloat16, or class_share=1."
        )
    for name in ("gradient_accumulation_steps", "use_ema"):
        value = getattr(inner, name, None)
        if value:
            raise ValueError(
                f"`{name}` of {type(inner).__name__} must be off for a loss "
                "with `class_share`, because each step updates different "
                f"rows. Received: {name}={value}. Omit it, or use "
                "class_share=1."
            )


def check_no_accumulation(optimizer: keras.Optimizer) -> None:
    """Rejects updates from the gradients of several learners' turns."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    steps = inner.gradient_accumulation_steps
    if steps:
        raise ValueError(
            f"`gradient_accumulation_steps` of {type(inner).__name__} must be "
            "off for alternating learners, because its gradients are of steps "
            "in which different learners have their turn. Received: "
            f"gradient_accumulation_steps={steps}. Use accumulate={steps} of "
            "the method, which computes each batch in parts."
        )


def multiplier_of(model: keras.Model, variable: keras.Variable) -> float:
    """The factor of the learning rate for a variable."""
    multipliers: dict[str, float] = model.rate_multipliers
    path = _path_of(model, variable)
    for pattern, multiplier in multipliers.items():
        if matches(pattern, path):
            return multiplier
    return 1.0


def check_multipliers(model: keras.Model) -> None:
    """Raises `ValueError` if a pattern decides on no variable."""
    paths = [_path_of(model, v) for v in model.variables]
    check_patterns(model.rate_multipliers, paths)


def _path_of(model: keras.Model, variable: keras.Variable) -> str:
    # Layers of a functional backbone do not carry its name in theirs.
    in_backbone = any(v is variable for v in model.backbone.variables)
    return f"backbone/{variable.path}" if in_backbone else variable.path


def restricted_update(model: keras.Model) -> RestrictedUpdate:
    """The update of a `MetricModel` by its optimizer."""
    model._build_optimizer()
    optimizer, variables = model.optimizer, model.trainable_variables
    learners = zip_longest(
        model.head.learner_variables(),
        model.objective.learner_variables(),
        fillvalue=(),
    )
    return RestrictedUpdate(
        optimizer,
        variables,
        learners=[[*a, *b] for a, b in learners],
        multipliers=[
            (v, m) for v in variables if (m := multiplier_of(model, v)) != 1.0
        ],
        sampled=model.sampled_rows,
        frozen=model.backbone.trainable_variables if model.freeze_steps else (),
        freeze_steps=model.freeze_steps,
    )


class SampledRows:
    """The rows of a table that a step has read, as a separate variable.

    Optimizers update whole variables. Instead of the table, (C, D), they are
    given its rows, (S, D): before an update, the rows are set to the values of
    the table, and their slots to those of the table's slots; afterwards, both
    are written back. Nothing else in the table or its slots changes, so a row
    that a step does not read gets neither momentum nor weight decay in that
    step. Each step reads `rows_a_step` rows of the table, all different.
    """

    def __init__(self, table: keras.Variable) -> None:
        self.table = table
        # Paths show whose slots are whose, and which variables losses own.
        with keras.name_scope("sampled"), keras.name_scope("loss"):
            # The variable for the optimizer, which is no weight of the model.
            self.rows = keras.Variable(
                initializer="zeros",
                shape=(table.rows_a_step, *table.shape[1:]),
                dtype=table.dtype,
                autocast=False,
                name=table.path.replace("/", "_"),
            )
        self._pairs = [(table, self.rows)]

    def pair(
        self, slots: list[keras.Variable], slots_of_rows: list[keras.Variable]
    ) -> None:
        """Pairs the optimizer's slots of the table with those of the rows."""
        shapes = {slot.shape[:1] for slot in slots} - {self.table.shape[:1]}
        if shapes:
            raise ValueError(
                "The optimizer of a loss with `class_share` must keep its "
                "state per row, so that single rows can be updated. "
                f"Received: state of the shapes {shapes} for "
                f"{self.table.path!r}. Use Adam, AdamW, SGD, RMSprop or Lion, "
                "or class_share=1."
            )
        slots_by_name = zip(slots, slots_of_rows, strict=True)
        self._pairs = [(self.table, self.rows), *slots_by_name]

    def load(self, indices: Tensor) -> None:
        """Sets the rows to the given rows of the table."""
        for whole, rows in self._pairs:
            rows.assign(rows_at(whole, indices))

    def store(self, indices: Tensor) -> None:
        """Writes the rows back to the table."""
        for whole, rows in self._pairs:
            write_rows(whole, indices, ops.convert_to_tensor(rows))


class RowsGradient(NamedTuple):
    """The gradient of some rows, as TensorFlow's `IndexedSlices`."""

    values: Tensor
    """(S, D)."""
    indices: Tensor
    """(S,) int32: the rows, all different."""


def gradient_of_rows(
    gradient: Tensor | tf.IndexedSlices | RowsGradient, table: keras.Variable
) -> tf.IndexedSlices | RowsGradient:
    """The gradient of a table, which must cover only the rows of a step."""
    is_sparse = isinstance(gradient, tf.IndexedSlices | RowsGradient)
    if not is_sparse or gradient.values.shape[0] != table.rows_a_step:
        raise ValueError(
            "A loss with `class_share` must be computed once per step, and "
            "not in one of several branches. Received: a gradient of "
            f"{'other' if is_sparse else 'all'} rows of {table.path!r}. Use "
            "class_share=1, or a method that trains all of its losses in "
            "every step."
        )
    return gradient


class RestrictedUpdate:
    """Applies gradients only to what may change, at the permitted rate.

    A single `optimizer.apply` computes the whole update, for any optimizer. It
    is then undone for everything that must not change: the weights and
    optimizer slots of an idle learner are restored bit-identically. Zero
    gradients would not be sufficient, since momentum and weight decay also
    move weights whose gradient is zero. A rate multiplier m turns an update u
    into m·u, which for every first-order optimizer is the same as a learning
    rate m times as large. What Keras does with weights after an update,
    constraints and averages (`use_ema`), comes after these corrections: of a
    weight that stays as it is, the average stays as well. If a step reads only
    some rows of a table, the rows replace the table, see `SampledRows`; the
    optimizer is built for both.

    `learners` are the variables of each learner, none if all are always
    updated. In the first `freeze_steps` updates, `frozen` variables stay as
    they are, whereas the optimizer already gathers their moments.
    """

    def __init__(
        self,
        optimizer: keras.Optimizer,
        variables: list[keras.Variable],
        learners: list[list[keras.Variable]],
        multipliers: list[tuple[keras.Variable, float]],
        sampled: Sequence[SampledRows] = (),
        frozen: Sequence[keras.Variable] = (),
        freeze_steps: int = 0,
    ) -> None:
        self.optimizer = optimizer
        self.frozen = frozen
        self.freeze_steps = freeze_steps
        self.sampled = {id(x.table): x for x in sampled}
        if learners or sampled:
            check_slots(optimizer, [*variables, *(x.rows for x in sampled)])
        for x in sampled:
            check_sampling(optimizer)
            x.pair(slots_of(optimizer, x.table), slots_of(optimizer, x.rows))
        self.multipliers = [(self._stand_in(v), m) for v, m in multipliers]
        groups = [list(map(self._stand_in, owned)) for owned in learners]
        self.learners = [
            [*owned, *(s for v in owned for s in slots_of(optimizer, v))]
            for owned in groups
        ]

    def _stand_in(self, variable: keras.Variable) -> keras.Variable:
        """What the optimizer updates in place of a variable."""
        sampled = self.sampled.get(id(variable))
        return variable if sampled is None else sampled.rows

    def __call__(
        self,
        gradients: list[Tensor],
        variables: list[keras.Variable],
        active: Tensor | None,
    ) -> None:
        """Applies one update.

        `active` is the learner that may be updated, −1 for all; None if nothing
        is restricted.
        """
        if not self.sampled:
            self._apply(gradients, variables, active)
            return
        read = {
            id(v): gradient_of_rows(gradient, v)
            for v, gradient in zip(variables, gradients, strict=True)
            if id(v) in self.sampled and gradient is not None
        }
        for table, slices in read.items():
            self.sampled[table].load(slices.indices)
        self._apply(
            [
                read[id(v)].values if id(v) in read else gradient
                for v, gradient in zip(variables, gradients, strict=True)
            ],
            list(map(self._stand_in, variables)),
            active,
        )
        for table, slices in read.items():
            self.sampled[table].store(slices.indices)

    def _apply(
        self,
        gradients: list[Tensor],
        variables: list[keras.Variable],
        active: Tensor | None,
    ) -> None:
        turn, learners = (-1, []) if active is None else (active, self.learners)
        if learners:
            check_no_accumulation(self.optimizer)
        old_slots = [[_copy(v) for v in group] for group in learners]
        before = [(v, m, _copy(v)) for v, m in self.multipliers]
        is_early = self.optimizer.iterations < self.freeze_steps
        start = [(v, _copy(v)) for v in self.frozen]
        changed = [v for v, _, _ in before] + [v for v, _ in start]
        turns = {
            id(v): ops.logical_or(turn < 0, ops.equal(turn, k))
            for k, group in enumerate(learners)
            for v in group
        }
        corrected = [*changed, *chain(*learners)]
        with _Afterwards(self.optimizer, corrected, turns):
            with _without_constraints([v for v, _, _ in before]):
                _optimize(self.optimizer, self._prepare(gradients), variables)
            for variable, multiplier, old in before:
                new = old + multiplier * (variable - old)
                constraint = variable.constraint
                variable.assign(constraint(new) if constraint else new)
            for variable, old in start:
                new = ops.convert_to_tensor(variable)
                variable.assign(ops.where(is_early, old, new))
            for group, olds in zip(learners, old_slots, strict=True):
                for variable, old in zip(group, olds, strict=True):
                    new = ops.convert_to_tensor(variable)
                    moves = turns[id(variable)]
                    variable.assign(ops.where(moves, new, old))

    def _prepare(self, gradients: list[Tensor]) -> list[Tensor]:
        """Makes gradients dense, and clips them alike on all replicas.

        The gradient of a table has a slice for every time that a row is read.
        Keras squares and clips such slices before it adds them: a row read n
        times would learn about √n times as fast with Adam or RMSprop.
        """
        if keras.backend.backend() != "tensorflow":  # They are dense.
            return gradients
        dense = [
            tf.convert_to_tensor(x) if isinstance(x, tf.IndexedSlices) else x
            for x in gradients
        ]
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            dense = share_overflow(dense)
        return clip_sum(dense, self.optimizer)


@contextmanager
def _without_constraints(variables: list[keras.Variable]) -> Iterator[None]:
    """A context in which Keras does not constrain some variables."""
    constraints = [(v, v.constraint) for v in variables]
    for variable, _ in constraints:
        variable.constraint = None
    try:
        yield
    finally:
        for variable, constraint in constraints:
            variable.constraint = constraint


class _Afterwards:
    """Averages weights after an update that is corrected in this context.

    Keras averages weights and overwrites them by averages at the end of
    `apply`. Within this context it does not; this is done when the context
    ends, unless the update was skipped, as after an overflow. Nothing changes
    where no variable is corrected.

    Args:
        optimizer: The optimizer, which may scale the loss.
        corrected: Variables that are corrected.
        turns: Whether the learner that owns a variable has its turn, by id.
            Averages of others stay, but for the first, which all begin with.
    """

    def __init__(
        self,
        optimizer: keras.Optimizer,
        corrected: list[keras.Variable],
        turns: dict[int, Tensor],
    ) -> None:
        self.turns = turns
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        self.optimizer = inner
        self.averages = bool(corrected and inner.use_ema)
        # Several steps may be one update.
        self.updates, self.steps = (
            ops.copy(ops.convert_to_tensor(x))
            for x in (inner.iterations, inner._iterations)
        )

    def __enter__(self) -> None:
        if self.averages:
            self.optimizer.use_ema = False

    def __exit__(self, kind: Any, *error: Any) -> None:
        if self.averages:
            self.optimizer.use_ema = True
            if kind is None:
                self._average()

    def _average(self) -> None:
        """Averages like Keras, but exactly keeps what does not move."""
        inner = self.optimizer
        is_done = ops.not_equal(inner._iterations, self.steps)
        is_first = ops.equal(self.updates, 0)
        every = inner.ema_overwrite_frequency
        variables = inner._trainable_variables
        for variable, average in zip(
            variables, inner._model_variables_moving_average, strict=True
        ):
            if average is None:
                continue
            moves = ops.logical_and(is_done, self.turns.get(id(variable), True))
            rate = ops.where(moves, 1.0 - inner.ema_momentum, 0.0)
            rate = ops.where(ops.logical_and(is_done, is_first), 1.0, rate)
            share = ops.cast(rate, variable.dtype)
            average.assign(average + share * (variable - average))
            if every:
                is_due = ops.logical_and(
                    is_done, ops.equal((self.updates + 1) % every, 0)
                )
                new = ops.convert_to_tensor(average)
                old = ops.convert_to_tensor(variable)
                variable.assign(ops.where(is_due, new, old))


def _copy(variable: keras.Variable) -> Tensor:
    # Arithmetic forces a read now: a plain read may alias the buffer that
    # the optimizer is about to write into.
    return ops.copy(ops.convert_to_tensor(variable))


def _optimize(
    optimizer: keras.Optimizer,
    gradients: list[Tensor],
    variables: list[keras.Variable],
) -> None:
    """Like `optimizer.apply`, but also with a scaled loss on JAX.

    Keras then assigns within a branch, which JAX does not notice.
    """
    is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if not (is_scaled and keras.backend.backend() == "jax"):
        optimizer.apply(gradients, variables)
        return
    groups = [variables, optimizer.variables]
    values, slots = ([ops.convert_to_tensor(v) for v in x] for x in groups)
    new_values = optimizer.stateless_apply(slots, gradients, values)
    for group, new in zip(groups, new_values, strict=True):
        for variable, value in zip(group, new, strict=True):
            variable.assign(value)


def loss_of(model: Any, terms: Tensors, sample_weight: Tensor | None) -> Tensor:
    """The weighted mean of the terms, with the losses of layers, ()."""
    per_example = model.weighting(terms, model.optimizer.iterations)
    if sample_weight is not None:
        per_example *= ops.cast(sample_weight, per_example.dtype)
    added = ops.zeros((), per_example.dtype)
    for loss in model.losses:
        added += ops.cast(loss, per_example.dtype)
    return ops.mean(per_example) + added


def remember(model: Any, outputs: Tensors, targets: Tensors) -> None:
    """Updates the momentum network and fills memories, after an update."""
    if model.momentum_encoder:
        model.momentum_encoder.update(model.backbone, model.head)
    model.objective.after_step(outputs, targets)


def log_batch(
    model: Any,
    loss: Tensor,
    terms: Tensors,
    x: Any,
    targets: Tensors,
    outputs: Tensors,
    sample_weight: Tensor | None,
) -> Tensors:
    """Adds a batch to the logs and returns them."""
    size = ops.shape(next(iter(terms.values())))[0]
    model.loss_tracker.update_state(loss, sample_weight=size)
    for name, tracker in model.term_trackers.items():
        tracker.update_state(terms[name])
    logs: Tensors = model.compute_metrics(
        x, targets["label"], outputs["embedding"], sample_weight
    )
    return logs
