"""Objective of an ensemble: that of every learner, and samples for each."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_dml.methods._dcml.tasks import ObjectiveWrapper, SeparateTasks
from keras_dml.model.objective import Objective
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensors


@register
class Bootstrap(ObjectiveWrapper):
    """An objective that is given a bootstrap sample of every batch.

    B of the B examples are drawn with replacement. The terms of an example
    count as often as it was drawn, which may be never; it remains a positive
    or a negative for the others. Terms of held-out batches are those of a
    sample, too, the same in every evaluation.

    Args:
        objective: See `ObjectiveWrapper`.
        seed: Seed of the samples; use a different one for every learner. None:
            determined by the seed of Keras.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: The outputs that the objective needs.
        targets: The targets that the objective needs.

    Returns:
        The terms of the objective, (B,), each times the number of draws.

    Reference:
        Breiman, "Bagging Predictors", Machine Learning 1996.
    """

    def __init__(
        self, objective: Objective, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(objective, **kwargs)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        size = ops.shape(targets["label"])[0]
        uniform = keras.random.uniform((size,), seed=self.seed_generator)
        rows = ops.cast(ops.floor(uniform * ops.cast(size, "float32")), "int32")
        drawn = ops.equal(rows[:, None], ops.arange(size, dtype="int32")[None])
        counts = ops.sum(ops.cast(drawn, "float32"), axis=0)
        values = self.objective(outputs, targets)
        return {name: value * counts for name, value in values.items()}


@register
class IndependentObjective(SeparateTasks):
    """An objective for each learner; the terms are the sums over learners.

    The gradient of a learner is then that which it would have alone.

    Args:
        objectives: Objectives with the same terms that read
            `outputs["embedding"]`, such as `EmbeddingObjective`; the k-th is
            given the embedding of learner k. Each belongs to one learner,
            because it may own variables.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, K, d).
        targets: The targets that the objectives need.

    Returns:
        The terms of the objectives, each summed over them, (B,).

    Raises:
        ValueError: If an objective is given twice, or their terms differ.
    """

    def __init__(self, objectives: Sequence[Objective], **kwargs: Any) -> None:
        super().__init__(objectives, **kwargs)
        terms = {task.terms for task in objectives}
        if len(terms) != 1:
            raise ValueError(
                "`objectives` of IndependentObjective must have the same "
                f"terms. Received: {sorted(terms)}. Use SeparateTasks for "
                "different objectives."
            )
        (self.terms,) = terms

    @property
    def term_weights(self) -> dict[str, Any]:
        return self.objectives[0].term_weights

    @property
    def needs_positives(self) -> bool:
        return self.objectives[0].needs_positives

    @property
    def needs_negatives(self) -> bool:
        return self.objectives[0].needs_negatives

    @property
    def needs_triplets(self) -> bool:
        return self.objectives[0].needs_triplets

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        values = super().call(outputs, targets)
        learners = range(len(self.objectives))
        return {
            name: sum(values[f"{k}_{name}"] for k in learners)
            for name in self.terms
        }
