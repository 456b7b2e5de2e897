"""Objectives on the parts of an embedding: sub-tasks, and learners alone."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from keras_dml.losses import MetricLoss
from keras_dml.losses.composite import smallest_limit
from keras_dml.model.objective import (
    LossObjective,
    Objective,
    check_objective,
)
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Shapes, Tensors


@register
class SharedTask(LossObjective):
    """One metric loss on every part: Σ_m J(z_m).

    A loss that owns variables is built separately for each part.

    Args:
        loss: See `LossObjective`.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, M, d).
        targets: Dict with `"label"`, (B,).

    Returns:
        `{"metric": (B,)}`, the sum over parts; with several losses, each under
        its own name.
    """

    def __init__(self, loss: MetricLoss, **kwargs: Any) -> None:
        super().__init__(loss, **kwargs)
        self.split_terms()

    def build(self, outputs_shape: Shapes) -> None:
        self.build_parts(outputs_shape, name="part")

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        by_term = self.part_terms(targets["label"], outputs["parts"])
        return {term: sum(values) for term, values in by_term.items()}


@register
class SeparateTasks(Objective):
    """A separate task for each part, which takes the part as its embedding.

    Args:
        objectives: Objectives that read `outputs["embedding"]`, such as
            `EmbeddingObjective`; the m-th is given part m. Each objective
            belongs to one part, because it may own variables.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, M, d), and optionally
            `"momentum_parts"`, which become `"momentum_embedding"`.
        targets: The targets that the objectives need.

    Returns:
        `{"0_metric": (B,), …}`: the terms of all objectives, each with the
        number of its part as a prefix.

    Raises:
        ValueError: If the numbers of objectives and parts differ, or an
            objective is given twice or is none.
    """

    def __init__(self, objectives: Sequence[Objective], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for task in objectives:
            check_objective(type(self).__name__, "objectives", task)
        if len({id(task) for task in objectives}) < len(objectives):
            raise ValueError(
                "`objectives` of SeparateTasks must be different objects, "
                "since each may own variables. Received: the same objective "
                "twice."
            )
        self.objectives = list(objectives)
        self.terms = tuple(
            f"{m}_{name}"
            for m, task in enumerate(self.objectives)
            for name in task.terms
        )

    @property
    def term_weights(self) -> dict[str, Any]:
        return {
            f"{m}_{name}": weight
            for m, task in enumerate(self.objectives)
            for name, weight in task.term_weights.items()
        }

    @property
    def label_limit(self) -> int | None:
        return smallest_limit(task.label_limit for task in self.objectives)

    def build(self, outputs_shape: Shapes) -> None:
        batch, parts, dim = outputs_shape["parts"]
        if parts != len(self.objectives):
            raise ValueError(
                "`objectives` of SeparateTasks must have one objective per "
                "part. "
                f"Received: {len(self.objectives)} objectives, "
                f"{parts} parts. Use num_compositors={len(self.objectives)}."
            )
        for task in self.objectives:
            task.build({**outputs_shape, "embedding": (batch, dim)})

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        return {
            f"{m}_{name}": value
            for m, task in enumerate(self.objectives)
            for name, value in task(_part(outputs, m), targets).items()
        }

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        for m, task in enumerate(self.objectives):
            task.after_step(_part(outputs, m), targets)


def _part(outputs: Tensors, m: int) -> Tensors:
    """Outputs whose embeddings are the m-th parts."""
    names = {
        "parts": "embedding",
        "momentum_parts": "momentum_embedding",
        "activations": "activation",
    }
    of_part = {
        name: outputs[parts][:, m]
        for parts, name in names.items()
        if parts in outputs
    }
    return {**outputs, **of_part}


class ObjectiveWrapper(Objective):
    """Base class of objectives that change what another objective is given.

    Args:
        objective: The other objective, whose terms are returned.
        **kwargs: See `Objective`.
    """

    def __init__(self, objective: Objective, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        owner = type(self).__name__
        self.objective = check_objective(owner, "objective", objective)
        self.terms = objective.terms

    # Training reads these from the other objective.
    term_weights: Any = property(attrgetter("objective.term_weights"))
    label_limit: Any = property(attrgetter("objective.label_limit"))
    needs_positives: Any = property(attrgetter("objective.needs_positives"))
    needs_negatives: Any = property(attrgetter("objective.needs_negatives"))
    needs_triplets: Any = property(attrgetter("objective.needs_triplets"))

    def build(self, outputs_shape: Shapes) -> None:
        self.objective.build(outputs_shape)

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        self.objective.after_step(outputs, targets)
