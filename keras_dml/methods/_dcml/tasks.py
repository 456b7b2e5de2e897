"""Sub-tasks of DCML: objectives on the parts of an embedding."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_dml.losses import MetricLoss
from keras_dml.losses.composite import least
from keras_dml.losses.variables import check_class_ids, nan_outside, take_rows
from keras_dml.model.objective import (
    LossObjective,
    Objective,
    check_objective,
)
from keras_dml.utils.arguments import check_count
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Several, Shapes, Tensors


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
        return least(task.label_limit for task in self.objectives)

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
        values = {}
        for m, task in enumerate(self.objectives):
            for name, value in task(_part(outputs, m), targets).items():
                values[f"{m}_{name}"] = value
        return values

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        for m, task in enumerate(self.objectives):
            task.after_step(_part(outputs, m), targets)


_OF_A_PART = {
    "parts": "embedding",
    "momentum_parts": "momentum_embedding",
    "activations": "activation",
}
"""What the m-th rows of an output are to the m-th task."""


def _part(outputs: Tensors, m: int) -> Tensors:
    """Outputs whose embeddings are the m-th parts."""
    of_part = {
        name: outputs[parts][:, m]
        for parts, name in _OF_A_PART.items()
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

    @property
    def term_weights(self) -> dict[str, Any]:
        return self.objective.term_weights

    @property
    def label_limit(self) -> int | None:
        return self.objective.label_limit

    @property
    def needs_positives(self) -> bool:
        return self.objective.needs_positives

    @property
    def needs_negatives(self) -> bool:
        return self.objective.needs_negatives

    @property
    def needs_triplets(self) -> bool:
        return self.objective.needs_triplets

    def build(self, outputs_shape: Shapes) -> None:
        self.objective.build(outputs_shape)

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        self.objective.after_step(outputs, targets)


@register
class MetaClasses(ObjectiveWrapper):
    """A task whose classes are random groups of the training classes.

    This is the relabeling of DREML: L̃ = {l_r(i)}, where r is a random map
    from classes to meta-classes of about equal size, which is saved with the
    model.

    Args:
        objective: The objective that is given meta-classes as labels.
        num_classes: Number of classes in the training set.
        num_meta_classes: Number of meta-classes that they are grouped into.
        seed: Seed of the groups; use a different one for every learner.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: The outputs that the objective needs.
        targets: Dict with `"label"`, (B,), in [0, num_classes). Any other
            label raises an error, or results in NaN inside a compiled graph.

    Returns:
        The terms of the objective.

    Raises:
        ValueError: If there are fewer than two meta-classes, or more than
            there are classes.

    Reference:
        Xuan et al., "Deep Randomized Ensembles for Metric Learning", ECCV
        2018.
    """

    def __init__(
        self,
        objective: Objective,
        num_classes: int,
        num_meta_classes: Several,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(objective, **kwargs)
        owner = type(self).__name__
        check_count(owner, "num_classes", num_classes, least=num_meta_classes)
        self.num_classes = num_classes
        self.num_meta_classes = num_meta_classes
        self.seed = seed

    @property
    def label_limit(self) -> int | None:
        return self.num_classes

    # Classes that a batch lacks say little of meta-classes.
    needs_positives = needs_negatives = needs_triplets = False

    def build(self, outputs_shape: Shapes) -> None:
        order = np.random.default_rng(self.seed).permutation(self.num_classes)
        self.meta_class = self.add_weight(
            shape=(self.num_classes,),
            initializer=lambda _, dtype=None: ops.cast(
                order % self.num_meta_classes, dtype
            ),
            dtype="int32",
            trainable=False,
            name="meta_class",
        )
        super().build(outputs_shape)

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        labels = ops.convert_to_tensor(targets["label"])
        check_class_ids("MetaClasses", labels, self.num_classes)
        values = self.objective(outputs, self._relabeled(targets))
        return {
            name: nan_outside(value, labels, self.num_classes)
            for name, value in values.items()
        }

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        super().after_step(outputs, self._relabeled(targets))

    def _relabeled(self, targets: Tensors) -> Tensors:
        labels = ops.convert_to_tensor(targets["label"])
        return {**targets, "label": take_rows(self.meta_class, labels)}
