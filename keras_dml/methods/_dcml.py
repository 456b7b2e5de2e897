"""DCML: learners that are composed, and sub-tasks on the composites."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal

import keras
from annotated_types import Ge, Le
from keras import ops

from keras_dml import backbones, losses
from keras_dml.layers import Compositor
from keras_dml.layers.compositor import STANDARD_NORMAL
from keras_dml.losses.base import LossLike
from keras_dml.losses.composite import smallest_limit
from keras_dml.losses.regularizers import self_reinforcement
from keras_dml.methods._baseline import EmbeddingHead, EmbeddingObjective
from keras_dml.methods._divide_and_conquer import (
    AlternatingObjective,
    divided_data,
)
from keras_dml.methods._parts import SeparateTasks, SharedTask
from keras_dml.methods.declaration import declare
from keras_dml.model.head import Linear
from keras_dml.model.loss_weighting import weights_with
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import Objective, check_objective
from keras_dml.utils.arguments import check_divisible
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import register
from keras_dml.utils.types import (
    Config,
    Pooling,
    Shapes,
    Tensor,
    Tensors,
    Units,
)


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
        return smallest_limit((self.metric.label_limit, self.tasks.label_limit))

    # The discriminative task needs the most.
    needs_positives: Any = property(attrgetter("metric.needs_positives"))
    needs_negatives: Any = property(attrgetter("metric.needs_negatives"))
    needs_triplets: Any = property(attrgetter("metric.needs_triplets"))

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


@register
class LearnersHead(EmbeddingHead):
    """Pooled features → K × `Dense(d)` → sub-embeddings and embedding.

    The learners always train together and are therefore one `Dense(K · d)`.

    Args:
        embedding_dim: Dimensions of the whole embedding, D = K · d.
        num_learners: Number of learners, K.
        **kwargs: See `Head`.

    Returns:
        Three float32 tensors: `"embedding"`, (B, D), the concatenated
        sub-embeddings, normalized; `"parts"`, (B, K, d), the normalized
        sub-embeddings; `"sub_embeddings"`, (B, K, d), the sub-embeddings
        before normalization.

    Raises:
        ValueError: If `embedding_dim` is not a multiple of `num_learners`.
    """

    def __init__(
        self, embedding_dim: Units, num_learners: Units, **kwargs: Any
    ) -> None:
        check_divisible("dcml", embedding_dim, "`num_learners`", num_learners)
        super().__init__(embedding_dim, **kwargs)
        self.num_learners = num_learners

    def linear_layers(self) -> list[Linear]:
        return [Linear.of(self.dense, is_rotated=True)]

    def embed(self, pooled: Tensor) -> Tensors:
        y = self.dense(pooled)
        dim = self.embedding_dim // self.num_learners
        sub_embeddings = ops.reshape(y, (-1, self.num_learners, dim))
        return {
            "embedding": l2_normalize(y),
            "parts": l2_normalize(sub_embeddings),
            "sub_embeddings": sub_embeddings,
        }


@declare(
    "dcml",
    "sub-tasks on mixtures of the learners' embeddings, whose signed weights "
    "are learned",
    divided_data(
        lambda method: method["num_compositors"] or method["num_learners"],
        only_with=("tasks", "clusters"),
        figures=("compositor_weights", "cluster_distances"),
    ),
    examples={
        "num_learners": 2,
        "num_compositors": 3,
        "input_norm": True,
        "compositor_initializer": "glorot_normal",
        "loss_weights": {"task_metric": 0.5},
    },
)
def dcml(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 512,
    num_learners: Units = 4,
    num_compositors: Annotated[int, Ge(0), Le(2**16)] = 8,
    loss: LossLike = "margin",
    tasks: Literal["metric", "clusters"]
    | Objective
    | Sequence[Objective] = "metric",
    train_compositors_on_tasks: bool = True,
    softmax: bool = True,
    signs: bool = True,
    input_norm: bool = False,
    compositor_initializer: str
    | Config
    | keras.initializers.Initializer = STANDARD_NORMAL,
    pooling: Pooling = "avg",
    loss_weights: dict[str, Any] | None = None,
    **kwargs: Any,
) -> MetricModel:
    r"""Deep Compositional Metric Learning (Zheng et al., 2021).

    What it computes: K learners embed an image, and the embedding is their
    concatenation. One metric loss trains it as a whole. Sub-tasks train it as
    well, but not on the sub-embeddings: each of M compositors computes new,
    signed weights for the sub-embeddings of an image, and a sub-task sees
    their weighted sum. Compositors learn from the sub-tasks and from a loss
    that reinforces their largest weight, so that they come to favor different
    learners (Eq. 8):

    $$
    J = J_{dis}(y) + \lambda_r \sum_m J_{reinf}(c_m) +
    \sum_m \lambda_m J_T(z_m) ,
    $$

    with the embedding $y$, the weights $c_m$ of compositor m and its
    composite $z_m$; $J_{reinf}$ is
    `losses.regularizers.self_reinforcement`.

    The terms are "metric", "reinforcement" and those of the sub-tasks with the
    prefix "task_", by default "task_metric". `loss_weights` weights them.

    Args:
        backbone: See `baseline`.
        embedding_dim: Dimensions of the whole embedding, D = K · d.
        num_learners: Number of learners, K; must divide `embedding_dim`.
        num_compositors: Number of compositors, M; 0 puts the sub-tasks on the
            sub-embeddings (Table 1).
        loss: The loss of J_dis and of the named `tasks`, see `baseline`.
        tasks: The tasks that train the composites. "metric": `loss` on each
            composite (`SharedTask`). "clusters": the sub-tasks of divide and
            conquer, `loss` on composite m for a batch from cluster m. An
            `Objective` that reads `outputs["parts"]`, (B, M, d). A list of M
            objectives that read `outputs["embedding"]`, one per composite
            (`SeparateTasks`).
        train_compositors_on_tasks: False trains the compositors only by
            self-reinforcement (Table 1, "w/o J_T").
        softmax: See `layers.Compositor`.
        signs: See `layers.Compositor`.
        input_norm: See `layers.Compositor`.
        compositor_initializer: Initializer of the compositors; the default is
            a standard normal distribution, as in the paper. It saturates the
            softmax if sub-embeddings are long; `input_norm` prevents this.
        pooling: See `Head`: "avg", "max", "avg_max", "gem", "cls" or
            "none".
        loss_weights: See `MetricModel`. λ_r, "reinforcement", is 0.05 by
            default; 0 turns the self-reinforcement off (Table 1).
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`.

    Raises:
        ValueError: If `num_learners` does not divide `embedding_dim`, or
            `tasks` is unknown.

    Deviations:
        - J_reinf takes the maximum of |c| (Eq. 7 uses the signed c, which has
          no logarithm if it is negative). Its gradient reaches the sign branch
          through the straight-through estimator, and reinforces the present
          sign there.
        - In J_dis, the term of the negatives is added (Eq. 9 subtracts it).
        - The released code has no signs and no loss on the concatenation, and
          tests on composites; this implementation follows the paper.

    Reference:
        Zheng et al., "Deep Compositional Metric Learning", CVPR 2021,
        https://openaccess.thecvf.com/content/CVPR2021/html/Zheng_Deep_Compositional_Metric_Learning_CVPR_2021_paper.html.
    """
    compositor = None
    if num_compositors != 0:
        compositor = Compositor(
            num_compositors,
            softmax=softmax,
            signs=signs,
            input_norm=input_norm,
            train_on_composites=train_compositors_on_tasks,
            initializer=compositor_initializer,
            name="compositor",
        )
    weights = {} if compositor is None else {"reinforcement": 0.05}
    metric_loss = losses.get(loss)
    return MetricModel(
        backbone=backbones.get(backbone),
        head=LearnersHead(
            embedding_dim, num_learners, pooling=pooling, name="head"
        ),
        objective=CompositionObjective(
            EmbeddingObjective(metric_loss, name="metric"),
            _sub_tasks(tasks, metric_loss),
            compositor,
            name="objective",
        ),
        loss_weights=weights_with(weights, loss_weights),
        **kwargs,
    )


def _sub_tasks(
    tasks: str | Objective | Sequence[Objective], loss: losses.MetricLoss
) -> Objective:
    if isinstance(tasks, Objective):
        return tasks
    if not isinstance(tasks, str):
        return SeparateTasks(tasks, name="tasks")
    # A loss belongs to one objective: it may own variables.
    copy = loss.copy()
    if tasks == "metric":
        return SharedTask(copy, name="tasks")
    if tasks == "clusters":
        return AlternatingObjective(copy, update="all", name="tasks")
    raise ValueError(
        '`tasks` of dcml must be "metric", "clusters", an Objective, or a '
        f"list of objectives, one per compositor. Received: tasks={tasks!r}."
    )
