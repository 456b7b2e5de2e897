"""Objective of DCML: sub-tasks on composites, and the compositors."""

from typing import Any

from keras import ops

from keras_dml.layers import Compositor
from keras_dml.losses.composite import least
from keras_dml.losses.regularizers import self_reinforcement
from keras_dml.model.objective import Objective, check_objective
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Shapes, Tensor, Tensors


@register
class CompositionObjective(Objective):
    """A discriminative task on the embedding, and sub-tasks on composites.

    The terms of Eq. 8 come from two objectives. `metric` reads the outputs of
    the head. `tasks` reads the same outputs, but with composites in place of
    the learners' embeddings: `"parts"`, (B, M, d), are the unit composites,
    and `"embedding"`, (B, M · d), is their concatenation, divided by √M. Any
    objective that reads these two can be a sub-task, including the objectives
    of other ensembles.

    The compositors belong to the objective and not to the head, because the
    test embedding does not need them. Every step updates everything, whatever
    a sub-task requests: each learner takes part in each composite.

    Args:
        metric: The discriminative task J_dis on the whole embedding.
        tasks: The sub-tasks J_T.
        compositor: The compositors. None gives the sub-tasks the learners' own
            sub-embeddings (Table 1, "w/o compositors").
        **kwargs: See `Objective`.

    Call arguments:
        outputs: The dict of a head, with `"embedding"`, (B, D), and
            `"sub_embeddings"`, (B, K, d), or, without compositors, what the
            sub-tasks need.
        targets: Dict with `"label"`, (B,), and what the sub-tasks need.

    Returns:
        Dict of (B,) tensors: `"metric"`; `"reinforcement"`, Σ_m J_reinf, if
        there are compositors; and the terms of the sub-tasks as `"task_…"`.
    """

    def __init__(
        self,
        metric: Objective,
        tasks: Objective,
        compositor: Compositor | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        owner = type(self).__name__
        self.metric = check_objective(owner, "metric", metric)
        self.tasks = check_objective(owner, "tasks", tasks)
        self.compositor = compositor
        self.terms = (
            *metric.terms,
            *(("reinforcement",) if compositor else ()),
            *(f"task_{name}" for name in tasks.terms),
        )

    @property
    def term_weights(self) -> dict[str, Any]:
        of_tasks = self.tasks.term_weights.items()
        return {
            **self.metric.term_weights,
            **{f"task_{name}": weight for name, weight in of_tasks},
        }

    @property
    def label_limit(self) -> int | None:
        return least((self.metric.label_limit, self.tasks.label_limit))

    @property
    def needs_positives(self) -> bool:
        return self.metric.needs_positives

    @property
    def needs_negatives(self) -> bool:
        return self.metric.needs_negatives

    @property
    def needs_triplets(self) -> bool:
        return self.metric.needs_triplets

    def build(self, outputs_shape: Shapes) -> None:
        self.metric.build(outputs_shape)
        if self.compositor is None:
            self.tasks.build(outputs_shape)
            return
        shape = outputs_shape["sub_embeddings"]
        self.compositor.build(shape)
        parts, _ = self.compositor.compute_output_shape(shape)
        embedding = (parts[0], parts[1] * parts[2])
        self.tasks.build(
            {**outputs_shape, "embedding": embedding, "parts": parts}
        )

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        values = dict(self.metric(outputs, targets))
        task_outputs = outputs
        if self.compositor is not None:
            task_outputs, weights = _compose(self.compositor, outputs)
            values["reinforcement"] = self_reinforcement(weights)
        for name, value in self.tasks(task_outputs, targets).items():
            values[f"task_{name}"] = value
        return values

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        self.metric.after_step(outputs, targets)
        if self.compositor is not None:
            outputs, _ = _compose(self.compositor, outputs)
        self.tasks.after_step(outputs, targets)


def _compose(
    compositor: Compositor, outputs: Tensors
) -> tuple[Tensors, Tensor]:
    """The outputs for the sub-tasks, and the weights, (B, M, K)."""
    composites, weights = compositor(outputs["sub_embeddings"])
    composed = {**outputs, **_as_ensemble(composites)}
    if "momentum_sub_embeddings" in outputs:
        keys, _ = compositor(outputs["momentum_sub_embeddings"])
        # Keys are targets: they teach the compositors nothing.
        keys = _as_ensemble(ops.stop_gradient(keys))
        composed |= {f"momentum_{name}": x for name, x in keys.items()}
    return composed, weights


def _as_ensemble(composites: Tensor) -> Tensors:
    """Composites, (B, M, d), under the names of an ensemble's outputs."""
    parts = l2_normalize(composites)
    _, count, dim = parts.shape
    embedding = ops.reshape(parts, (-1, count * dim)) / count**0.5
    return {"embedding": embedding, "parts": parts}
