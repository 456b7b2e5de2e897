"""DiVA: four tasks with separate embeddings, and little in common."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import keras
from annotated_types import Ge, Le
from keras import ops

from keras_dml import backbones
from keras_dml.layers import GradientReversal
from keras_dml.losses.base import LossLike
from keras_dml.losses.composite import rescale, smallest_limit
from keras_dml.losses.regularizers import correlation
from keras_dml.methods._diva_tasks import (
    TASKS,
    Shared,
    Task,
    TaskName,
    diva_tasks,
    warn_without_triplets,
)
from keras_dml.methods.declaration import Arguments, Traits, declare
from keras_dml.model.checks import check_momentum
from keras_dml.model.head import Head, Linear
from keras_dml.model.loss_weighting import weights_with
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import Objective
from keras_dml.utils.arguments import check_divisible
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import (
    Count,
    HalfToWhole,
    Pooling,
    Positive,
    Reduction,
    Shape,
    Shapes,
    Share,
    Tensor,
    Tensors,
    Units,
)


@register
class Decorrelation(SerializableLayer):
    """The correlation that a small network finds between two embeddings.

    c(φ_a, φ_b) = ‖R(φ_a) ∘ ψ(R(φ_b))‖², with the gradient reversal R and the
    unit output of ψ = Dense(`units`) – ReLU – Dense(D) (Sec. 3.2). Minimizing
    −c trains ψ to find the correlation, and the embeddings, behind R, to have
    none.

    The weights of ψ have "/loss/psi/" in their paths: they have no weight
    decay by default, and their learning rate can be set with
    `rate_multipliers={"/loss/psi/": 10.0}`.

    Args:
        units: Hidden units of ψ.
        reduction: See `losses.regularizers.correlation`.
        **kwargs: Passed to `keras.layers.Layer`. `dtype` defaults to float32,
            whatever the global policy.

    Call arguments:
        target: φ_a, (B, D), unit rows: the discriminative embedding.
        source: φ_b, (B, D), unit rows: the auxiliary embedding.

    Returns:
        (B,) float32.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020, Eq. 7.
    """

    def __init__(
        self,
        units: Count = 512,
        reduction: Reduction = "mean",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.units = units
        self.reduction = reduction
        self.reversal = GradientReversal(
            dtype=self.dtype_policy, name="reversal"
        )

    def build(self, target_shape: Shape) -> None:
        dtype = self.dtype_policy
        hidden = keras.layers.Dense(
            self.units, "relu", dtype=dtype, name="hidden"
        )
        output = keras.layers.Dense(
            target_shape[-1], dtype=dtype, name="output"
        )
        self.psi = keras.Sequential([hidden, output], name="psi")
        with keras.name_scope("loss"):
            self.psi.build((None, target_shape[-1]))

    def call(self, target: Tensor, source: Tensor) -> Tensor:
        mapped = l2_normalize(self.psi(self.reversal(source)))
        return correlation(self.reversal(target), mapped, self.reduction)

    def compute_output_shape(
        self, target_shape: Shape, source_shape: Shape
    ) -> Shape:
        return (target_shape[0],)


@register
class DivaObjective(Objective):
    """One task on each part of the embedding, and their decorrelation.

    The terms are the tasks, under their names, and −c of the main task and
    each other task (Eq. 8), under names like "decorrelation_shared". Eq. 7 is
    their sum with the weights 1, α and ρ. The main task is "discriminative",
    or the first task if there is none.

    Args:
        tasks: Instances of `Task` with different names.
        decorrelate: Whether there is decorrelation.
        psi_units: Hidden units of ψ, `units` of `Decorrelation`.
        reduction: See `Decorrelation`.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, K, d), and, if a task needs keys,
            `"momentum_parts"` of the second view, (B, K, d).
        targets: Dict with `"label"`, (B,), the labels of tasks that have their
            own, and optionally `"index"`, (B,): the
            image of each row, by which "intra" recognizes images that occur
            twice in a batch.

    Returns:
        A dict with a (B,) tensor for each term.

    Raises:
        ValueError: If the second view is missing, or a task is none.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        decorrelate: bool = True,
        psi_units: Count = 512,
        reduction: Reduction = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for task in tasks:
            if not isinstance(task, Task):
                raise ValueError(
                    f"`tasks` of {type(self).__name__} must be instances of "
                    f"Task. Received: {task!r}. For a loss, use "
                    'methods.LossTask(loss, name="discriminative").'
                )
        self.tasks = list(tasks)
        names = [task.name for task in self.tasks]
        # The task that the others support.
        is_there = "discriminative" in names
        self.main = names.index("discriminative") if is_there else 0
        self.decorrelate = decorrelate
        self.psi_units = psi_units
        self.reduction = reduction
        self.decorrelations = [
            Decorrelation(
                psi_units,
                reduction,
                dtype=self.dtype_policy,
                name=f"decorrelation_{task.name}",
            )
            for i, task in enumerate(self.tasks)
            if decorrelate and i != self.main
        ]
        # A term has the name of the layer that computes it.
        self.terms = (
            *self.term_weights,
            *(layer.name for layer in self.decorrelations),
        )

    @property
    def term_weights(self) -> dict[str, Any]:
        weights: dict[str, Any] = {}
        for task in self.tasks:
            weights |= task.term_weights
        return weights

    @property
    def label_limit(self) -> int | None:
        return smallest_limit(task.label_limit for task in self._of_classes)

    @property
    def _of_classes(self) -> list[Task]:
        """The tasks whose labels are the classes."""
        return [task for task in self.tasks if task.label == "label"]

    @property
    def needs_positives(self) -> bool:
        # Each trains a part of its own.
        return any(task.needs_positives for task in self._of_classes)

    @property
    def needs_negatives(self) -> bool:
        return any(task.needs_negatives for task in self._of_classes)

    def build(self, outputs_shape: Shapes) -> None:
        shape = (None, outputs_shape["parts"][-1])
        for layer in (*self.tasks, *self.decorrelations):
            layer.build(shape)

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        parts = outputs["parts"]
        keys = self._keys(outputs)
        terms: Tensors = {}
        for i, task in enumerate(self.tasks):
            seconds = keys[:, i] if task.needs_keys else None
            values = task(
                parts[:, i],
                targets[task.label],
                seconds,
                targets.get("index"),
            )
            is_dict = isinstance(values, dict)
            terms |= values if is_dict else {task.name: values}
        # The embedding of the main task against that of each other one.
        auxiliary = [i for i in range(len(self.tasks)) if i != self.main]
        if self.decorrelate:
            for i, layer in zip(auxiliary, self.decorrelations, strict=True):
                other = parts[:, i]
                terms[layer.name] = -layer(parts[:, self.main], other)
        return terms

    def _keys(self, outputs: Tensors) -> Tensor:
        keys = outputs.get("momentum_parts")
        needing = [task.name for task in self.tasks if task.needs_keys]
        if needing and keys is None:
            raise ValueError(
                f"The tasks {needing} of diva compare two views of an image, "
                "the second of which is embedded by a momentum network. "
                "Received: "
                f"outputs {sorted(outputs)}, without momentum_parts. Train "
                'on batches `{"image": ..., "image2": ...}`, made by '
                "`keras_dml.data.pipeline(..., num_views=2)`, or remove "
                '"dance" from `tasks`.'
            )
        return keys

    def after_step(self, outputs: Tensors, targets: Tensors) -> None:
        parts = outputs["parts"]
        for i, task in enumerate(self.tasks):
            if task.needs_keys:
                task.after_step(outputs["momentum_parts"][:, i])
            task.remember(parts[:, i], targets[task.label])


@register
class TaskHead(Head):
    """Pooled features → one `Dense` and one unit embedding per task.

    The whole embedding is concat(w_t · unit embedding of task t), normalized.
    Weights enter a squared distance as w².

    Args:
        tasks: Names of the K tasks, all different.
        task_dim: Dimensions of each task's embedding, d.
        test_weights: w, one weight per task. None: all 1.
        **kwargs: See `Head`.

    Returns:
        `{"embedding": (B, K·d), "parts": (B, K, d)}`: unit embedding and unit
        embeddings of the tasks, float32.

    Raises:
        ValueError: If `test_weights` are not K numbers that are at least 0 and
            not all 0.
    """

    is_plain = False  # Files of models have it as one layer.

    def __init__(
        self,
        tasks: Sequence[str],
        task_dim: int,
        test_weights: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tasks = tuple(tasks)
        self.task_dim = task_dim
        self.test_weights = tuple(test_weights or [1.0] * len(self.tasks))
        fits = len(self.test_weights) == len(self.tasks)
        if not fits or min(self.test_weights) < 0 or not any(self.test_weights):
            raise ValueError(
                "`test_weights` of diva must hold one number of at least 0 "
                f"per task, {self.tasks}, and not only zeros. "
                f"Received: test_weights={test_weights!r}."
            )
        self.heads = [
            keras.layers.Dense(task_dim, dtype=self.dtype_policy, name=name)
            for name in self.tasks
        ]

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        for head in self.heads:
            head.build((None, features_shape[-1]))

    def linear_layers(self) -> list[Linear]:
        return [Linear.of(*self.heads, is_rotated=True)]

    def embed(self, pooled: Tensor) -> Tensors:
        parts = ops.stack([head(pooled) for head in self.heads], axis=1)
        parts = l2_normalize(parts)  # (B, K, d)
        weights = ops.convert_to_tensor(self.test_weights, dtype="float32")
        weighted = weights[:, None] * parts
        width = len(self.tasks) * self.task_dim
        embedding = l2_normalize(ops.reshape(weighted, (-1, width)))
        return {"embedding": embedding, "parts": parts}


def term_weights(
    objective: DivaObjective, alpha: float, rho: float
) -> dict[str, Any]:
    """The weight of every term in Eq. 7.

    With all four tasks, α = 0.3 and ρ = 1500, the weights are

        discriminative                       1       the main task
        dance, shared, intra                 0.3     α
        decorrelation_dance, _shared, _intra 1500    ρ

    The terms of decorrelation are −c, so ρ has a positive sign here. If the
    tasks' terms are 0.8, 2, 1 and 1, and each c is 0.001, the loss is 0.8 +
    0.3 · (2 + 1 + 1) + 1500 · (−0.003) = −2.5.
    """
    weights: dict[str, Any] = {}
    for i, task in enumerate(objective.tasks):
        factor = 1.0 if i == objective.main else alpha
        weights |= rescale("diva", factor, task.term_weights)
    for layer in objective.decorrelations:
        weights[layer.name] = rho
    return weights


def _needs_two_views(method: Arguments) -> str | None:
    if "dance" not in method["tasks"]:
        return None
    return (
        'the task "dance" of diva compares two views of an image: set '
        "`augmentation: {num_views: 2}`, or remove it from `tasks`"
    )


def _check_scale(momentum_scale: float, method: Arguments) -> None:
    has_network = "dance" in method.get("tasks", ())
    momentum = method.get("ema_momentum") if has_network else None
    check_momentum(momentum, momentum_scale)


@declare(
    "diva",
    "four tasks with an embedding each, decorrelated from each other",
    Traits(
        part="task",
        two_views=_needs_two_views,
        checks={"momentum_scale": _check_scale},
        check_labels=warn_without_triplets,
    ),
    examples={
        "embedding_dim": 12,
        "auxiliary_loss": {"name": "triplet", "margin": 0.3},
        "alpha": 0.2,
        "rho": 0.1,
        "shared": "negative_only",
        "queue_size": 20,
        "temperature": 0.2,
        "weighting": "paper",
        "limit": 2.0,
        "ema_momentum": 0.5,
        "copy_statistics": True,
        "momentum_scale": 0.5,
        "psi_units": 16,
        "reduction": "sum",
        "test_weights": [0.5, 1, 2, 1],
    },
)
def diva(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 512,
    tasks: Sequence[TaskName] = TASKS,
    loss: LossLike = "margin",
    auxiliary_loss: LossLike | None = None,
    alpha: float = 0.3,
    rho: float = 1500.0,
    shared: Shared = "strict",
    queue_size: Annotated[int, Ge(1), Le(2**24)] = 3360,
    temperature: Positive = 0.1,
    weighting: Literal["queue_axis", "batch_axis", "paper"] | None = (
        "queue_axis"
    ),
    limit: Positive | None = None,
    ema_momentum: Share = 0.9,
    copy_statistics: bool = False,
    momentum_scale: HalfToWhole = 1.0,
    psi_units: Units = 512,
    reduction: Reduction = "mean",
    test_weights: Sequence[float] | None = None,
    pooling: Pooling = "avg",
    loss_weights: dict[str, Any] | None = None,
    **kwargs: Any,
) -> MetricModel:
    r"""DiVA: Diverse Visual Feature Aggregation (Milbich et al., 2020).

    What it computes: one dense layer and one unit embedding per task, on
    shared features. "discriminative" separates classes; "shared" finds what
    different classes have in common; "intra" finds what varies within one
    class; "dance" distinguishes single images, by noise contrast with a queue
    of momentum keys, weighted by distance. Small networks ψ look for
    correlation between the discriminative embedding and the others, and
    reversed gradients remove it. The test embedding is the concatenation of
    all embeddings:

    $$
    \mathcal{L} = \mathcal{L}_{disc} + \alpha \left( \mathcal{L}_{dance} +
    \mathcal{L}_{shared} + \mathcal{L}_{intra} \right) -
    \rho \sum_t c(\phi_{disc}, \phi_t) ,
    $$

    with the embeddings $\phi_t$ of the other tasks, and $c$ the correlation
    of `losses.regularizers.correlation` behind a gradient reversal.

    If "dance" is among the tasks, train with two views, `data.pipeline(...,
    num_views=2)`. For "intra", batches need three images per class; for
    "shared", three classes.

    Args:
        backbone: See `baseline`.
        embedding_dim: Dimensions of the whole embedding, which K tasks share
            equally; K must divide them.
        tasks: Any of "discriminative", "dance", "shared", "intra", in their
            order in the embedding. `["discriminative"] * 4` is the purely
            discriminative ensemble of Figure 4.
        loss: The loss of the discriminative task, and, with their own
            triplets, of the shared and intra-class tasks; see `baseline`.
        auxiliary_loss: A different loss for the shared and intra-class tasks.
        alpha: α, the weight of every task except the main one, which is
            "discriminative", or the first task if there is none.
        rho: ρ, the weight of the decorrelation; 0 turns it off. 1500 is the
            paper's for CUB-200 at a learning rate of 1e-5, and 100 for Cars196.
            At larger rates it can destroy the features: start with 10.
        shared: See `diva_tasks`: "strict" (paper), "negative_only" or
            "permuted" (released code).
        queue_size: Number of keys that "dance" contrasts with.
        temperature: τ of "dance".
        weighting: See `losses.nce`: "queue_axis", with which negatives hardly
            count, "batch_axis", "paper", or None, plain NCE.
        limit: λ of `weighting="paper"`.
        ema_momentum: μ of the momentum network.
        copy_statistics: Whether the momentum network copies the moving
            statistics of batch normalization, which the paper freezes. Set it
            for a backbone whose batch normalization is not frozen.
        momentum_scale: Sides of the second view when the momentum network
            embeds it, relative to those of the first: 0.5 makes its pass cost
            a quarter. For convolutional backbones with global pooling.
        psi_units: Hidden units of ψ, which has no weight decay; its learning
            rate is `rate_multipliers={"/loss/psi/": 10.0}`.
        reduction: "mean" or "sum", of c over dimensions.
        test_weights: Weight of each task's embedding in the whole: (.5, 1, 1,
            1) for CUB, (.5, 2, 2, 2) for Cars, all 1 (default) for SOP. A
            weight enters a squared distance as its square; 0 leaves the
            embedding out.
        pooling: See `Head`: "avg", "max", "avg_max", "gem", "cls" or "none".
        loss_weights: Weights of single terms, which override those given by
            `alpha` and `rho`.
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`.

    Raises:
        ValueError: If an argument is not as described.

    Deviations:
        - `weighting="queue_axis"` is the default, with the positive in the
          denominator, because the paper gives no λ for its own form,
          `weighting="paper"`. Weights sum to 1 over the queue for each query;
          in the released runs they sum to 1 over the batch for each key, which
          is `weighting="batch_axis"`.
        - The positive of "dance" comes from the momentum network, without a
          gradient, as in the released code; Eq. 5 and 6 print φ(Ĩ_a).
        - The output of ψ is normalized, as in the released code; Eq. 7 does
          not print this.
        - τ is that of the paper; the released runs use 0.01.
        - c is a mean over dimensions, as in the released code, and as ρ
          assumes; Eq. 7 prints a sum, which is `reduction="sum"`.
        - Each anchor draws one triplet of distinct images for the intra-class
          task. The released code also draws the anchors, and draws with
          replacement.
        - Negatives are drawn within the `max_distance` of the base loss, 1.4
          by default; the released code has no limit of this kind.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020, https://arxiv.org/abs/2004.13458.
    """
    layers = diva_tasks(
        tasks,
        loss,
        auxiliary_loss,
        shared,
        queue_size=queue_size,
        temperature=temperature,
        weighting=weighting,
        limit=limit,
    )
    objective = DivaObjective(
        layers, rho != 0, psi_units, reduction, name="objective"
    )
    names = [layer.name for layer in layers]
    dim = check_divisible(
        "diva", embedding_dim, "the number of its tasks", len(names)
    )
    weights = term_weights(objective, alpha, rho)
    return MetricModel(
        backbone=backbones.get(backbone),
        head=TaskHead(names, dim, test_weights, pooling=pooling, name="head"),
        objective=objective,
        loss_weights=weights_with(weights, loss_weights),
        ema_momentum=ema_momentum if "dance" in tasks else None,
        copy_statistics=copy_statistics,
        momentum_scale=momentum_scale,
        **kwargs,
    )
