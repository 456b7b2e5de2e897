"""DiVA: one embedding a task, four tasks, and little in common."""

from collections.abc import Sequence
from typing import Any, Literal

import keras

from keras_dml import backbones
from keras_dml.losses.base import LossLike
from keras_dml.methods._diva.decorrelation import Decorrelation
from keras_dml.methods._diva.head import TaskHead
from keras_dml.methods._diva.tasks import (
    TASKS,
    Shared,
    Task,
    TaskName,
    diva_tasks,
    main_task,
    warn_without_triplets,
)
from keras_dml.methods.declaration import Arguments, Traits, declare
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import Objective
from keras_dml.utils.arguments import check_count
from keras_dml.utils.serialization import register
from keras_dml.utils.types import (
    Count,
    IntArray,
    Pooling,
    Positive,
    Reduction,
    Shape,
    Share,
    Tensor,
)


@register
class DivaObjective(Objective):
    """A task on each part of the embedding, and their decorrelation.

    The terms are the tasks by name, and −c of the main task and each other
    one (Eq. 8) by names like "decorrelation_shared". Eq. 7 is their sum
    with the weights 1, α and ρ. The main task is "discriminative", or the
    first where there is none.

    Args:
        tasks: Instances of `Task`, with different names.
        decorrelate: Whether there is decorrelation.
        psi_units: Hidden units of ψ; see `Decorrelation`.
        reduction: As for `Decorrelation`.
        **kwargs: As for `Objective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, K, d), and, where a task needs
            keys, `"momentum_parts"` of the second view, (B, K, d).
        targets: Dict with `"label"`, (B,).

    Returns:
        A dict with a (B,) tensor for each term.

    Raises:
        ValueError: If the second view is missing.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        decorrelate: bool = True,
        psi_units: int = 512,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tasks = list(tasks)
        self.main = main_task([task.name for task in self.tasks])
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
        self.terms = tuple(layer.name for layer in self._term_layers())

    def _term_layers(self) -> list[keras.layers.Layer]:
        return [*self.tasks, *self.decorrelations]

    def build(self, outputs_shape: dict[str, Shape]) -> None:
        shape = (None, outputs_shape["parts"][-1])
        for layer in self._term_layers():
            layer.build(shape)

    def call(
        self, outputs: dict[str, Tensor], targets: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        parts = outputs["parts"]
        keys = self._keys(outputs)
        terms = {
            task.name: task(
                parts[:, i],
                targets["label"],
                keys[:, i] if task.needs_keys else None,
            )
            for i, task in enumerate(self.tasks)
        }
        # The embedding of the main task against that of each other one.
        others = [i for i in range(len(self.tasks)) if i != self.main]
        if self.decorrelate:
            for i, layer in zip(others, self.decorrelations, strict=True):
                other = parts[:, i]
                terms[layer.name] = -layer(parts[:, self.main], other)
        return terms

    def _keys(self, outputs: dict[str, Tensor]) -> Tensor:
        keys = outputs.get("momentum_parts")
        needing = [task.name for task in self.tasks if task.needs_keys]
        if needing and keys is None:
            raise ValueError(
                f"The tasks {needing} of diva compare two views of an image, "
                "of which a momentum network sees the second. Received: "
                f"outputs {sorted(outputs)}, without momentum_parts. Train "
                'on batches `{"image": ..., "image2": ...}`, which '
                "`keras_dml.data.pipeline(..., num_views=2)` makes, or leave "
                '"dance" out of `tasks`.'
            )
        return keys

    def after_step(
        self, outputs: dict[str, Tensor], targets: dict[str, Tensor]
    ) -> None:
        for i, task in enumerate(self.tasks):
            if task.needs_keys:
                task.after_step(outputs["momentum_parts"][:, i])


def term_weights(
    objective: DivaObjective, alpha: float, rho: float
) -> dict[str, float]:
    """The weight of every term in Eq. 7.

    With all four tasks, α = 0.3 and ρ = 1500 they are

        discriminative                       1       the main task
        dance, shared, intra                 0.3     α
        decorrelation_dance, _shared, _intra 1500    ρ

    The terms of decorrelation are −c, so that ρ has a positive sign here.
    Where the tasks' terms are 0.8, 2, 1 and 1, and each c is 0.001, the
    loss is 0.8 + 0.3 · (2 + 1 + 1) + 1500 · (−0.003) = −2.5.
    """
    weights = {}
    for i, task in enumerate(objective.tasks):
        weights[task.name] = 1.0 if i == objective.main else alpha
    for layer in objective.decorrelations:
        weights[layer.name] = rho
    return weights


def _needs_two_views(method: Arguments) -> str | None:
    if "dance" not in method["tasks"]:
        return None
    return (
        'the task "dance" of diva compares two views of an image: set '
        "`augmentation: {num_views: 2}`, or leave it out of `tasks`"
    )


def _check_labels(method: Arguments, labels: IntArray, images: int) -> None:
    if "intra" in method["tasks"]:
        warn_without_triplets(labels, images)


@declare(
    "diva",
    "four tasks with an embedding each, kept from saying the same",
    Traits(part="task", two_views=_needs_two_views, check_labels=_check_labels),
)
def diva(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Count = 512,
    tasks: Sequence[TaskName] = TASKS,
    loss: LossLike = "margin",
    auxiliary_loss: LossLike | None = None,
    alpha: float = 0.3,
    rho: float = 1500.0,
    shared: Shared = "strict",
    queue_size: Count = 3360,
    temperature: Positive = 0.1,
    weighting: Literal["released", "paper"] | None = "released",
    limit: Positive | None = None,
    ema_momentum: Share = 0.9,
    copy_statistics: bool = False,
    psi_units: Count = 512,
    reduction: Reduction = "mean",
    test_weights: Sequence[float] | None = None,
    pooling: Pooling = "avg",
    loss_weights: dict[str, Any] | None = None,
    **kwargs: Any,
) -> MetricModel:
    """DiVA: Diverse Visual Feature Aggregation (Milbich et al., 2020).

    What it computes: one dense layer and one unit embedding for each task,
    on shared features. "discriminative" separates classes; "shared" finds
    what different classes have in common; "intra" what varies within one;
    "dance" tells single images apart, by noise contrast with a queue of
    momentum keys, weighted by distance. Small networks ψ look for
    correlation of the discriminative embedding with the others, and
    reversed gradients remove it. The test embedding is all of them side by
    side:

    L = L_disc + α (L_dance + L_shared + L_intra) − ρ Σ c(φ_disc, φ_x)

    With "dance" among the tasks, train it with two views,
    `data.pipeline(..., num_views=2)`. With "intra", have three images of a
    class in a batch, with "shared" three classes.

    Args:
        backbone: A name or path for `backbones.get`, or the Keras model
            that it returns, from images (B, H, W, C) to features.
        embedding_dim: Dimensions of the whole embedding; each of K tasks
            gets ⌊embedding_dim / K⌋ of them.
        tasks: Any of "discriminative", "dance", "shared", "intra", in this
            order in the embedding. `["discriminative"] * 4` is the purely
            discriminative ensemble of Figure 4.
        loss: The loss of the discriminative task, and of the shared and
            intra-class ones with their own triplets: a loss of
            `keras_dml.losses`, or its name, or its config.
        auxiliary_loss: Another loss for the latter two.
        alpha: α, the weight of every task but the main one, which is
            "discriminative", or the first where there is none.
        rho: ρ, the weight of the decorrelation; 0 leaves it out.
        shared: "strict" (paper), "negative_only" or "permuted" (released
            code); see `diva_tasks`.
        queue_size: Number of keys that "dance" contrasts with.
        temperature: τ of "dance".
        weighting: "released", "paper", or None for plain NCE; see
            `losses.nce`.
        limit: λ of `weighting="paper"`.
        ema_momentum: μ of the momentum network.
        copy_statistics: Whether it takes over the moving statistics of
            batch normalization. In the paper these are frozen. Set it for
            a backbone that normalizes by the batch.
        psi_units: Hidden units of ψ.
        reduction: "mean" or "sum", of c over dimensions; see
            `Decorrelation`.
        test_weights: Weight of each task's embedding in the whole: (.5, 1,
            1, 1) for CUB, (.5, 2, 2, 2) for Cars, all 1 (default) for SOP.
        pooling: "avg" or "max".
        loss_weights: Weights of single terms, which replace those by
            `alpha` and `rho`.
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel` that is built and waits for `compile`.

    Raises:
        ValueError: If an argument is not as described.

    Deviations:
        - `weighting="released"` is the default, with the positive in the
          denominator: the paper gives no λ for its own form, which is
          `weighting="paper"`. Weights sum to 1 over the queue for each
          query; an older form in the release sums over the batch.
        - τ is the paper's; the released runs use 0.01.
        - c is a mean over dimensions, as in the released code and for its
          ρ; Eq. 7 prints a sum, which is `reduction="sum"`.
        - Each anchor draws one triplet of distinct images for the
          intra-class task. The released code draws anchors as well, and
          with replacement.
        - Negatives are drawn within the base loss's `max_distance`, 1.4 by
          default; the released code has no such limit.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020, https://arxiv.org/abs/2004.13458.
    """
    check_count("diva", "embedding_dim", embedding_dim, least=len(tasks))
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
        layers,
        decorrelate=rho != 0,
        psi_units=psi_units,
        reduction=reduction,
        name="objective",
    )
    names = [layer.name for layer in layers]
    weights = term_weights(objective, alpha, rho)
    return MetricModel(
        backbone=backbones.get(backbone),
        head=TaskHead(
            names,
            embedding_dim // len(names),
            test_weights,
            pooling=pooling,
            name="head",
        ),
        objective=objective,
        loss_weights={**weights, **(loss_weights or {})},
        ema_momentum=ema_momentum if "dance" in tasks else None,
        copy_statistics=copy_statistics,
        **kwargs,
    )
