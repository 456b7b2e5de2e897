"""RestrictedUpdate: an update of what may move in this step."""

import keras
from keras import ops

from keras_dml.utils.types import Tensor

LOSS_VARIABLES = "/loss/"
"""What the paths of variables that losses own have in them."""


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
    """The optimizer's variables that belong to one model variable.

    Keras names them after the variable's path.
    """
    prefix = variable.path.replace("/", "_") + "_"
    return [s for s in optimizer.variables if s.name.startswith(prefix)]


def check_slots(
    optimizer: keras.Optimizer, variables: list[keras.Variable]
) -> None:
    """Checks that every slot of an optimizer can be told whose it is.

    Raises:
        ValueError: If the optimizer names some after nothing, as
            Adafactor does its factored moments.
    """
    known = {id(s) for v in variables for s in slots_of(optimizer, v)}
    unknown = [
        s.path
        for s in optimizer.variables
        if s.shape != () and id(s) not in known
    ]
    if unknown:
        raise ValueError(
            "The optimizer of a model with alternating learners must keep "
            "its state by variable, so that idle learners can be left "
            f"alone. Received: {type(optimizer).__name__}, whose variables "
            f"{unknown[:3]} do not say to which weight they belong. Use "
            'Adam, AdamW, SGD, RMSprop, Lion or Muon, or update="all".'
        )


class RestrictedUpdate:
    """Applies gradients; idle learners and rate multipliers respected.

    The whole update is computed by one `optimizer.apply`, whatever the
    optimizer, and then undone where it may not reach: an idle learner's
    weights and optimizer slots get back the very bits they had. Zero
    gradients would not do, since momentum and weight decay move a weight
    that has none. A rate multiplier m turns an update u into m·u, which
    for every first-order optimizer is a learning rate of m times the
    size.

    Args:
        optimizer: An optimizer, built for `variables`.
        variables: The trainable variables.
        learners: Variables of each learner; none when all always move.
        multipliers: (variable, m) for every m other than 1.

    Raises:
        ValueError: If there are learners, and the optimizer's state
            cannot be told apart by learner.
    """

    def __init__(
        self,
        optimizer: keras.Optimizer,
        variables: list[keras.Variable],
        learners: list[list[keras.Variable]],
        multipliers: list[tuple[keras.Variable, float]],
    ) -> None:
        if learners:
            check_slots(optimizer, variables)
        self.optimizer = optimizer
        self.multipliers = multipliers
        self.learners = [
            [*owned, *(s for v in owned for s in slots_of(optimizer, v))]
            for owned in learners
        ]

    def __call__(
        self,
        gradients: list[Tensor],
        variables: list[keras.Variable],
        active: Tensor | None,
    ) -> None:
        """Applies one update.

        Args:
            gradients: One for each variable.
            variables: The trainable variables.
            active: The learner that may move, −1 for all; None when there
                is nothing to restrict.
        """
        turn, learners = (-1, []) if active is None else (active, self.learners)
        kept = [[_copy(v) for v in group] for group in learners]
        before = [(v, m, _copy(v)) for v, m in self.multipliers]
        self.optimizer.apply(gradients, variables)
        for variable, multiplier, old in before:
            variable.assign(old + multiplier * (variable - old))
        for k, group in enumerate(learners):
            moves = ops.logical_or(turn < 0, ops.equal(turn, k))
            for variable, old in zip(group, kept[k], strict=True):
                variable.assign(ops.where(moves, variable, old))


def _copy(variable: keras.Variable) -> Tensor:
    # Arithmetic forces a read now: a plain read may alias the buffer that
    # the optimizer is about to write into.
    return ops.copy(ops.convert_to_tensor(variable))
