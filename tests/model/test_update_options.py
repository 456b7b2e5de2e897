"""Options of Keras's optimizers beside multipliers, learners and freezing.

The reference is an optimizer of its own for each of two weights.
"""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

from keras_dml.model.update import RestrictedUpdate

STEPS, FREEZE, FACTOR = 9, 4, 5.0
TURNS = (0, 1, 1, -1, 0, 1, 0, -1, 1)
OWN, OTHER = 0, 1

OPTIMIZERS: dict[str, Callable[..., keras.Optimizer]] = {
    "SGD": lambda rate=0.1, **kw: keras.optimizers.SGD(
        rate, momentum=0.9, nesterov=True, **kw
    ),
    "RMSprop": lambda rate=0.1, **kw: keras.optimizers.RMSprop(rate, **kw),
}
ADAM = {"Adam": lambda rate=0.1, **kw: keras.optimizers.Adam(rate, **kw)}

EMA = {"use_ema": True, "ema_momentum": 0.7}
OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "decay": {"weight_decay": 0.1},
    "clipnorm": {"clipnorm": 0.5},
    "clipvalue": {"clipvalue": 0.3},
    "loss scale": {"loss_scale_factor": 4.0},
    "averages": EMA,
    "overwriting": {**EMA, "ema_overwrite_frequency": 4},
    "decay and overwriting": {
        **EMA,
        "ema_overwrite_frequency": 3,
        "weight_decay": 0.1,
    },
}
ACCUMULATED = {
    "accumulation": {"gradient_accumulation_steps": 3},
    "accumulation and averages": {**EMA, "gradient_accumulation_steps": 3},
}


def weights(constraint: Any = None) -> list[keras.Variable]:
    rng = np.random.default_rng(0)
    return [
        keras.Variable(
            rng.normal(size=(3, 2)).astype("float32"),
            name=name,
            constraint=constraint,
        )
        for name in ("own", "other")
    ]


def gradients() -> Iterator[list[np.ndarray]]:
    rng = np.random.default_rng(1)
    for _ in range(STEPS):
        yield [rng.normal(size=(3, 2)).astype("float32") for _ in range(2)]


def values(variables: list[keras.Variable]) -> list[np.ndarray]:
    return [keras.ops.convert_to_numpy(v) for v in variables]


def finished(
    optimizer: keras.Optimizer, variables: list[keras.Variable]
) -> list[np.ndarray]:
    """Weights after the last step and after `fit` finalizes them."""
    last = values(variables)
    optimizer.finalize_variable_values(variables)
    return [*last, *values(variables)]


def restricted(
    optimizer: keras.Optimizer, constraint: Any = None, **kinds: Any
) -> list[np.ndarray]:
    """Weights trained by one optimizer with a restricted update."""
    variables = weights(constraint)
    optimizer.build(variables)
    arguments: dict[str, Any] = {"learners": [], "multipliers": []}
    if kinds.get("multiplies"):
        arguments["multipliers"] = [(variables[OWN], FACTOR)]
    if kinds.get("freezes"):
        arguments |= {"frozen": [variables[OWN]], "freeze_steps": FREEZE}
    if kinds.get("alternates"):
        arguments["learners"] = [[v] for v in variables]
    update = RestrictedUpdate(optimizer, variables, **arguments)
    for step, both in enumerate(gradients()):
        active = None
        if kinds.get("alternates"):
            active = keras.ops.convert_to_tensor(TURNS[step])
        update(list(map(keras.ops.convert_to_tensor, both)), variables, active)
    return finished(optimizer, variables)


def check(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("options", [*OPTIONS, *ACCUMULATED])
@pytest.mark.parametrize("name", [*OPTIMIZERS, *ADAM])
def test_multiplied_update_equals_an_optimizer_of_that_rate(
    name, options
) -> None:
    make = (OPTIMIZERS | ADAM)[name]
    kwargs = (OPTIONS | ACCUMULATED)[options]
    variables = weights()
    alone = [make(0.1 * FACTOR, **kwargs), make(0.1, **kwargs)]
    for both in gradients():
        for optimizer, gradient, variable in zip(
            alone, both, variables, strict=True
        ):
            optimizer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
    ends = [finished(o, [v]) for o, v in zip(alone, variables, strict=True)]
    expected = [ends[0][0], ends[1][0], ends[0][1], ends[1][1]]
    check(restricted(make(**kwargs), multiplies=True), expected)


def averaged(
    kwargs: dict[str, Any], step: int, old: list, new: list, moved: list[bool]
) -> tuple[list, list]:
    """Averages and weights after a step, by the definition.

    The average of a weight whose learner is idle stays, but for the first.
    """
    if "use_ema" not in kwargs:
        return new, new
    rate = 1.0 if step == 0 else 1 - kwargs["ema_momentum"]
    averages = [
        a + rate * (v - a) if turn or step == 0 else a
        for a, v, turn in zip(old, new, moved, strict=True)
    ]
    every = kwargs.get("ema_overwrite_frequency")
    is_due = every and (step + 1) % every == 0
    return averages, averages if is_due else new


def by_steps(make: Any, kwargs: dict[str, Any], moves: Any) -> list[np.ndarray]:
    """Each weight by its own optimizer where `moves(step, weight)` says so.

    `moves` returns whether the optimizer takes the step, and whether the weight
    keeps what it did.
    """
    plain = {k: v for k, v in kwargs.items() if "ema" not in k}
    variables, alone = weights(), [make(**plain), make(**plain)]
    averages = values(variables)
    for step, both in enumerate(gradients()):
        for k, variable in enumerate(variables):
            steps, keeps = moves(step, k)
            before = keras.ops.convert_to_numpy(variable)
            if steps:
                gradient = keras.ops.convert_to_tensor(both[k])
                alone[k].apply([gradient], [variable])
            if not keeps:
                variable.assign(before)
        moved = [moves(step, k)[0] for k in (OWN, OTHER)]
        averages, new = averaged(
            kwargs, step, averages, values(variables), moved
        )
        for variable, value in zip(variables, new, strict=True):
            variable.assign(value)
    return [*values(variables), *averages]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", [*OPTIMIZERS, *ADAM])
def test_frozen_weight_starts_after_its_last_frozen_step(name, options) -> None:
    make, kwargs = (OPTIMIZERS | ADAM)[name], OPTIONS[options]

    def moves(step: int, k: int) -> tuple[bool, bool]:
        return True, k == OTHER or step >= FREEZE

    check(
        restricted(make(**kwargs), freezes=True), by_steps(make, kwargs, moves)
    )


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_learner_moves_only_at_its_turn(name, options) -> None:
    make, kwargs = OPTIMIZERS[name], OPTIONS[options]

    def moves(step: int, k: int) -> tuple[bool, bool]:
        has_turn = TURNS[step] in (-1, k)
        return has_turn, has_turn

    check(
        restricted(make(**kwargs), alternates=True),
        by_steps(make, kwargs, moves),
    )


@pytest.mark.parametrize("kwargs", [EMA, {**EMA, "ema_overwrite_frequency": 2}])
def test_always_frozen_weight_stays_bit_identical(kwargs) -> None:
    optimizer = keras.optimizers.Adam(0.1, **kwargs)
    variables = weights()
    start = values(variables)[OWN]
    optimizer.build(variables)
    update = RestrictedUpdate(
        optimizer, variables, [], [], frozen=[variables[OWN]], freeze_steps=99
    )
    for both in gradients():
        update(list(map(keras.ops.convert_to_tensor, both)), variables, None)
    optimizer.finalize_variable_values(variables)
    np.testing.assert_array_equal(values(variables)[OWN], start)


def test_constraint_holds_after_a_multiplied_update() -> None:
    norms = keras.constraints.UnitNorm(axis=0)
    weight = restricted(keras.optimizers.SGD(0.1), norms, multiplies=True)[OWN]
    variable = weights(norms)[OWN]
    alone = keras.optimizers.SGD(0.1 * FACTOR)
    for both in gradients():
        gradient = keras.ops.convert_to_tensor(both[OWN])
        alone.apply([gradient], [variable])
    np.testing.assert_allclose(weight, values([variable])[0], rtol=1e-4)


@pytest.mark.parametrize("kind", ["freezes", "alternates"])
def test_constraint_leaves_idle_weights_bit_identical(kind) -> None:
    norms = keras.constraints.UnitNorm(axis=0)
    variables = weights(norms)
    start = values(variables)[OWN]
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(variables)
    update = RestrictedUpdate(
        optimizer,
        variables,
        [[v] for v in variables] if kind == "alternates" else [],
        [(variables[OWN], FACTOR)],
        frozen=[variables[OWN]] if kind == "freezes" else [],
        freeze_steps=9,
    )
    active = keras.ops.convert_to_tensor(1) if kind == "alternates" else None
    for both in gradients():
        update(list(map(keras.ops.convert_to_tensor, both)), variables, active)
    np.testing.assert_array_equal(values(variables)[OWN], start)


def test_skipped_update_is_not_averaged() -> None:
    inner = keras.optimizers.SGD(0.1, **EMA)
    optimizer = keras.optimizers.LossScaleOptimizer(inner)
    variables = weights()
    optimizer.build(variables)
    update = RestrictedUpdate(
        optimizer, variables, [], [(variables[OWN], FACTOR)]
    )
    first, *rest = gradients()
    update(list(map(keras.ops.convert_to_tensor, first)), variables, None)
    averages = values(inner._model_variables_moving_average)
    start = values(variables)
    overflow = [np.full_like(x, np.inf) for x in rest[0]]
    update(list(map(keras.ops.convert_to_tensor, overflow)), variables, None)
    for x, y in zip(values(variables), start, strict=True):
        np.testing.assert_array_equal(x, y)
    after = values(inner._model_variables_moving_average)
    for x, y in zip(after, averages, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("scaled", [False, True])
def test_alternating_learners_reject_accumulated_gradients(scaled) -> None:
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    if scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    with pytest.raises(ValueError, match="Use accumulate=2"):
        restricted(optimizer, alternates=True)
