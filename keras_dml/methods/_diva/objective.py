"""Objective of DiVA: one task per part, and their decorrelation."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_dml.layers import GradientReversal
from keras_dml.losses.composite import least
from keras_dml.losses.regularizers import correlation
from keras_dml.methods._diva.tasks import Task, main_task
from keras_dml.model.objective import Objective
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import (
    Count,
    Reduction,
    Shape,
    Shapes,
    Tensor,
    Tensors,
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
        return least(task.label_limit for task in self._of_classes)

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
        others = [i for i in range(len(self.tasks)) if i != self.main]
        if self.decorrelate:
            for i, layer in zip(others, self.decorrelations, strict=True):
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
