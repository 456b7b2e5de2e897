"""DCML: sub-tasks on composites of the learners' embeddings."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import keras
from annotated_types import Ge, Le
from keras import ops

from keras_dml import backbones, losses
from keras_dml.layers import Compositor
from keras_dml.layers.compositor import STANDARD_NORMAL
from keras_dml.losses.base import LossLike
from keras_dml.methods._baseline import EmbeddingHead, EmbeddingObjective
from keras_dml.methods._dcml.objective import CompositionObjective
from keras_dml.methods._dcml.tasks import SeparateTasks, SharedTask
from keras_dml.methods._divide_and_conquer import (
    AlternatingObjective,
    divided_data,
)
from keras_dml.methods.declaration import declare
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import Objective
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Config, Pooling, Tensor, Tensors, Units


@register
class LearnersHead(EmbeddingHead):
    """Pooled features → K × `Dense(d)` → sub-embeddings and embedding.

    The learners, which always train together, are one `Dense(K · d)`.

    Args:
        embedding_dim: Dimensions of the whole embedding, D = K · d.
        num_learners: Number of learners, K.
        **kwargs: As for `Head`.

    Returns:
        Float32: `"embedding"`, (B, D), the concatenated sub-embeddings
        made unit; `"parts"`, (B, K, d), each sub-embedding made unit;
        `"sub_embeddings"`, (B, K, d), as the learners give them.

    Raises:
        ValueError: If `num_learners` does not divide `embedding_dim`.
    """

    def __init__(
        self, embedding_dim: int, num_learners: int, **kwargs: Any
    ) -> None:
        if num_learners < 1 or embedding_dim % num_learners:
            raise ValueError(
                "`num_learners` of dcml must divide `embedding_dim`. Received: "
                f"num_learners={num_learners}, embedding_dim={embedding_dim}. "
                "Use for instance num_learners=4, embedding_dim=512."
            )
        super().__init__(embedding_dim, **kwargs)
        self.num_learners = num_learners

    def embed(self, pooled: Tensor) -> Tensors:
        y = self.dense(pooled)
        dim = self.embedding_dim // self.num_learners
        sub_embeddings = ops.reshape(y, (-1, self.num_learners, dim))
        return {
            "embedding": _unit(y),
            "parts": _unit(sub_embeddings),
            "sub_embeddings": sub_embeddings,
        }


@declare(
    "dcml",
    "sub-tasks on learned, signed sums of the learners' embeddings",
    divided_data(
        lambda method: method["num_compositors"] or method["num_learners"],
        only_with=("tasks", "clusters"),
        figures=("compositor_weights", "cluster_distances"),
    ),
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
    concatenation. One metric loss trains the whole. Sub-tasks train it
    too, but not on the sub-embeddings: each of M compositors weighs the
    sub-embeddings of an image anew, with signed weights, and a sub-task
    sees their weighted sum. Compositors learn from the sub-tasks and from
    a loss that strengthens their strongest weight, so that they come to
    favor different learners (Eq. 8):

    $$
    J = J_{dis}(y) + \lambda_r \sum_m J_{reinf}(c_m) +
    \sum_m \lambda_m J_T(z_m) ,
    $$

    with the embedding $y$, the weights $c_m$ of compositor m and its
    composite $z_m$; $J_{reinf}$ is
    `losses.regularizers.self_reinforcement`.

    [The method's page](../methods/dcml.md) has a drawing, costs
    and results.

    Terms are "metric", "reinforcement" and those of the sub-tasks, as
    "task_…": "task_metric" by default. `loss_weights` weights them.

    Args:
        backbone: As for `baseline`.
        embedding_dim: Dimensions of the whole embedding, D = K · d.
        num_learners: Number of learners, K; must divide `embedding_dim`.
        num_compositors: Number of compositors, M; 0 puts the sub-tasks on the
            sub-embeddings (Table 1).
        loss: The loss of J_dis and of named `tasks`, as for `baseline`.
        tasks: What the composites are trained on. "metric", `loss` on each
            (`SharedTask`); "clusters", the sub-tasks of divide and
            conquer: `loss` on composite m in a batch from cluster m; an
            `Objective` that reads `outputs["parts"]`, (B, M, d); or a list
            of M objectives that read `outputs["embedding"]`, one for each
            composite (`SeparateTasks`).
        train_compositors_on_tasks: False leaves the compositors to the
            self-reinforcement alone (Table 1, "w/o J_T").
        softmax: As for `layers.Compositor`.
        signs: As for `layers.Compositor`.
        input_norm: As for `layers.Compositor`.
        compositor_initializer: Initializer of the compositors, a standard
            normal distribution as in the paper. It saturates the softmax
            where sub-embeddings are long; `input_norm` prevents it.
        pooling: As for `Head`: "avg", "max", "gem", "cls" or "none".
        loss_weights: As for `MetricModel`. λ_r, "reinforcement", is 0.05
            by default; 0 leaves the self-reinforcement out (Table 1).
        **kwargs: Passed to `MetricModel`.

    Returns:
        As `baseline` does.

    Raises:
        ValueError: If `num_learners` does not divide `embedding_dim`, or
            `tasks` is unknown.

    Deviations:
        - J_reinf takes the maximum of |c| (Eq. 7: of the signed c, which
          may be negative and then has no logarithm). Its gradient reaches
          the sign branch through the straight-through estimator, and there
          strengthens the present sign.
        - In J_dis the term of the negatives is added (Eq. 9 subtracts it).
        - The released code has no signs and no loss on the concatenation,
          and tests on composites; this is the paper's method.

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
        loss_weights={**weights, **(loss_weights or {})},
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
        f"list of them, one for each compositor. Received: tasks={tasks!r}."
    )


def _unit(x: Tensor) -> Tensor:
    return ops.normalize(x, axis=-1, epsilon=1e-12)
