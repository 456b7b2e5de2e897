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
from keras_dml.model.loss_weighting import weights_with
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import Objective
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Config, Pooling, Tensor, Tensors, Units


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
        if embedding_dim % num_learners:
            raise ValueError(
                "`num_learners` of dcml must divide `embedding_dim`. Received: "
                f"num_learners={num_learners}, embedding_dim={embedding_dim}. "
                "Use, for example, num_learners=4, embedding_dim=512."
            )
        super().__init__(embedding_dim, **kwargs)
        self.num_learners = num_learners

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

    [The method's page](../methods/dcml.md) has a drawing, costs
    and results.

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
