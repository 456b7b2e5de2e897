"""Divide and conquer: one learner per cluster, one slice per learner."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import keras
from keras import ops

from keras_dml import backbones, losses
from keras_dml.layers import EmbeddingSlicer
from keras_dml.losses.base import LossLike
from keras_dml.methods._baseline import baseline
from keras_dml.methods.declaration import Arguments, Traits, Uses, declare
from keras_dml.model.head import Head, Linear
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective, stored_output
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Pooling, Shape, Shapes, Tensor, Tensors, Units

logger = logging.getLogger(__name__)

MergedStart: TypeAlias = Literal["learned", "class_means", "initial"]

NUM_LEARNERS = 4
"""Default K, as for CUB-200-2011 and Cars196."""


@register
class SlicedHead(Head):
    """Pooled features → `EmbeddingSlicer` → the embedding and its slices.

    Args:
        embedding_dim: Dimensions of the whole embedding, D.
        num_learners: Number of slices, K.
        **kwargs: See `Head`.

    Returns:
        `{"embedding": (B, D), "parts": (B, K, ceil(D / K))}`: unit embedding
        and unit slices, float32.
    """

    def __init__(
        self, embedding_dim: int, num_learners: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.embedding_dim = embedding_dim
        self.num_learners = num_learners
        self.slicer = EmbeddingSlicer(
            embedding_dim, num_learners, dtype=self.dtype_policy, name="slicer"
        )

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        self.slicer.build((None, features_shape[-1]))

    def linear_layers(self) -> list[Linear]:
        slicer = self.slicer
        return [Linear(slicer.kernels, slicer.biases, is_rotated=True)]

    def embed(self, pooled: Tensor) -> Tensors:
        embedding = self.slicer(pooled)
        parts = self.slicer.split(embedding)
        return {"embedding": embedding, "parts": parts}

    def learner_variables(self) -> list[list[keras.Variable]]:
        learners = range(self.num_learners)
        return [self.slicer.slice_variables(k) for k in learners]


@register
class AlternatingObjective(LossObjective):
    """A metric loss on the slice of the active learner (Eq. 3).

    The sampler names the active learner in `targets["learner"]`; −1 stands for
    the merged embedding, which the fine-tuning phase trains. Without that
    target, the merged embedding is always trained, and a warning is logged.

    A loss that owns variables is built once for each learner and once for the
    merged embedding, because their dimensions differ and because a step of one
    learner must not change the weights of another.

    Args:
        loss: A loss of `keras_dml.losses`.
        update: "active" (paper): a step on learner k updates only the shared
            representation and learner k. "all": as in the released code, the
            optimizer's momentum and weight decay also change idle learners.
        merged_start: See `divide_and_conquer`.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: Dict with `"embedding"`, (B, D), and `"parts"`, (B, K, d).
        targets: Dict with `"label"`, (B,), and optionally `"learner"`, (B,),
            the same value throughout the batch.

    Returns:
        `{"metric": (B,)}`; with several losses, each under its own name.

    Raises:
        ValueError: If `update` or `merged_start` is unknown.
    """

    def __init__(
        self,
        loss: losses.MetricLoss,
        update: Literal["active", "all"] = "active",
        merged_start: MergedStart = "class_means",
        **kwargs: Any,
    ) -> None:
        super().__init__(loss, **kwargs)
        self.update = update
        self.merged_start = merged_start
        self.split_terms()

    def build(self, outputs_shape: Shapes) -> None:
        # For the merged embedding; the slices have copies of their own.
        super().build(outputs_shape)
        self.build_parts(outputs_shape)

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        if "learner" not in targets:
            logger.warning(
                "divide_and_conquer trains only the merged embedding, because "
                "its batches do not name the active learner. Use batches of a "
                "ClusterSampler and the callback Recluster."
            )
            return self._merged_terms(outputs, targets)
        learner = _learner_of(targets)
        # Decided in the graph: the same compiled step serves all learners.
        return self._choose_branch(
            partial(ops.cond, learner < 0),
            partial(self._merged_terms, outputs, targets),
            partial(self._slice_terms, outputs, targets, learner),
        )

    def evaluate(self, outputs: Tensors, targets: Tensors) -> Tensors:
        """The merged embedding's loss, unless the targets name a learner."""
        everyone = ops.full_like(targets["label"], -1)
        return super().evaluate(outputs, {"learner": everyone, **targets})

    def _merged_terms(self, outputs: Tensors, targets: Tensors) -> Tensors:
        return self.loss.term_values(targets["label"], outputs["embedding"])

    def _slice_terms(
        self, outputs: Tensors, targets: Tensors, learner: Tensor
    ) -> Tensors:
        part = ops.take(outputs["parts"], learner, axis=1)  # (B, d)
        if not self.loss.owns_variables:
            return self.loss.term_values(targets["label"], part)
        # Learners differ in the variables of their losses: a branch each.
        return self._choose_branch(
            lambda *branches: ops.switch(learner, list(branches)),
            *(
                partial(loss.term_values, targets["label"], part)
                for loss in self.part_losses
            ),
        )

    def _choose_branch(
        self,
        choose: Callable[..., Any],
        *branches: Callable[[], Tensors],
    ) -> Tensors:
        """Returns the result of the branch that `choose` takes."""
        if keras.backend.backend() != "jax":
            values: Tensors = choose(*branches)
            return values

        # On JAX, a branch returns what it assigns, such as random states.
        def with_state(branch: Callable[[], Tensors]) -> Any:
            mapping = [(v, ops.convert_to_tensor(v)) for v in self.variables]
            with keras.StatelessScope(mapping) as scope:
                terms = branch()
            return terms, [scope.get_current_value(v) for v in variables]

        variables = self.non_trainable_variables
        values, state = choose(*(partial(with_state, x) for x in branches))
        for variable, value in zip(variables, state, strict=True):
            variable.assign(value)
        return values

    def start_merged(self, class_means: Callable[[int], Tensor]) -> None:
        if self.merged_start == "initial" or not self.loss.owns_variables:
            return
        means, count = None, self.loss.num_classes
        if self.merged_start == "class_means" and count is not None:
            means = class_means(count)
        self.loss.start_from(self.part_losses, means)

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        if not self.loss.has_memory:
            return
        labels = targets["label"]
        embedding = stored_output(outputs, "embedding")
        if "learner" not in targets:
            self.loss.remember(labels, embedding)
            return
        # Each loss remembers the batches that it has trained on.
        learner = _learner_of(targets)
        self.loss.remember(labels, embedding, learner < 0)
        parts = stored_output(outputs, "parts")
        for k, loss in enumerate(self.part_losses):
            loss.remember(labels, parts[:, k], ops.equal(learner, k))

    def active_learner(self, targets: Tensors) -> Tensor | None:
        if self.update == "all" or "learner" not in targets:
            return None
        return _learner_of(targets)

    def learner_variables(self) -> list[list[keras.Variable]]:
        return [layer.trainable_variables for layer in self.part_layers]


def _learner_of(targets: Tensors) -> Tensor:
    """The active learner, a scalar; −1 for all together."""
    return ops.cast(targets["learner"][0], "int32")


def divided_data(
    num_clusters: Callable[[Arguments], int],
    only_with: tuple[str, Any] | None = None,
    **traits: Any,
) -> Traits:
    """Traits of a method that trains on alternating clusters of the data."""
    sampler = Uses(
        "ClusterSampler",
        ("schedule", "fill"),
        lambda method, batches: {
            **batches,
            "num_learners": num_clusters(method),
        },
        only_with,
    )
    recluster = Uses(
        "Recluster",
        ("every", "partition", "partition_column", "cluster_space", "phases"),
        only_with=only_with,
    )
    return Traits(sampler=sampler, callbacks=(recluster,), **traits)


@declare(
    "divide_and_conquer",
    "one slice of the embedding for each cluster of the data",
    divided_data(
        lambda method: method["num_learners"] or NUM_LEARNERS,
        figures=("cluster_distances",),
        left_out=lambda method: (
            () if method["split_embedding"] else ("num_learners",)
        ),
    ),
    examples={
        "num_learners": 3,
        "update": "all",
    },
)
def divide_and_conquer(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 128,
    num_learners: Units | None = None,
    loss: LossLike = "margin",
    split_embedding: bool = True,
    update: Literal["active", "all"] | None = None,
    merged_start: MergedStart | None = None,
    pooling: Pooling = "avg",
    **kwargs: Any,
) -> MetricModel:
    r"""Divide and Conquer the Embedding Space (Sanakoyeu et al., 2019).

    What it computes: the embedding is cut into `num_learners` slices, and the
    training set into the same number of clusters, which are recomputed every T
    epochs in the embedding learned so far. In each step, one learner trains on
    a batch from its own cluster, and its loss updates only the shared backbone
    and its slice. At the end, the slices are joined, and the whole embedding
    is fine-tuned on all data (Algorithm 1).

    With $x^{(k)}$ the unit slice of learner k, the loss of a step on a batch
    from cluster k (Eq. 3), and the loss at the end with the whole embedding
    $x$, are

    $$
    \mathcal{L}_k = \mathcal{L}_{metric}(x^{(k)}) , \qquad
    \mathcal{L} = \mathcal{L}_{metric}(x) .
    $$

    Train it with batches of a `data.ClusterSampler` and with the callback
    `callbacks.Recluster`, which holds the options of the data division:
    `partition`, `cluster_space`, `phases`. The sampler's `schedule` is the
    order in which clusters alternate.

    Args:
        backbone: See `baseline`.
        embedding_dim: Dimensions of the whole embedding, D.
        num_learners: Number of slices and clusters, K; by default 4.
        loss: The base loss of every learner, see `baseline`.
        split_embedding: False trains the whole embedding on batches from one
            cluster at a time (Table 6, "no embedding splitting"). The model is
            then the baseline, without learners; the number of clusters is set
            in the sampler only.
        update: "active" (paper, default) or "all" (released code), see
            `AlternatingObjective`.
        merged_start: Initial variables of the merged embedding's loss, if it
            owns any. "class_means" (default): proxies start at the mean
            embedding of each class, and other variables as for "learned": the
            result of the learners, which is the concatenation of their unit
            proxies and the mean of their β. "initial": random.
        pooling: See `Head`: "avg", "max", "avg_max", "gem", "cls" or "none".
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`.

    Raises:
        ValueError: If the embedding is not split, and `num_learners`, `update`
            or `merged_start` is given.

    Deviations:
        - The paper does not say how long the fine-tuning lasts; by default,
          `Recluster` assigns the last fifth of the epochs to it.
        - New clusters are matched to old ones by maximum overlap, so that a
          learner keeps its data. The paper does not mention this, and the
          released code applies the inverse of that permutation.
        - The paper does not say how the proxies of the merged embedding are
          initialized; see `merged_start`. The released code has none: its
          only loss is the margin loss, with a fixed β and, instead of drawn
          negatives, the nearest beyond 0.5.

    Reference:
        Sanakoyeu et al., "Divide and Conquer the Embedding Space for Metric
        Learning", CVPR 2019, https://arxiv.org/abs/1906.05990.
    """
    if not split_embedding:
        arguments = {
            "num_learners": num_learners,
            "update": update,
            "merged_start": merged_start,
        }
        unused = {k: x for k, x in arguments.items() if x is not None}
        if unused:
            received = ", ".join(f"{k}={x!r}" for k, x in unused.items())
            raise ValueError(
                "divide_and_conquer(split_embedding=False) has one embedding "
                f"and no learners. Received: {received}. Omit "
                f"{' and '.join(f'`{name}`' for name in unused)}; the number "
                "of clusters is the `num_learners` of the ClusterSampler."
            )
        return baseline(
            backbone,
            embedding_dim=embedding_dim,
            loss=loss,
            pooling=pooling,
            **kwargs,
        )
    return MetricModel(
        backbone=backbones.get(backbone),
        head=SlicedHead(
            embedding_dim,
            NUM_LEARNERS if num_learners is None else num_learners,
            pooling=pooling,
            name="head",
        ),
        objective=AlternatingObjective(
            losses.get(loss),
            update=update or "active",
            merged_start=merged_start or "class_means",
            name="objective",
        ),
        **kwargs,
    )
