"""Tasks of DiVA: small layers that each train one embedding."""

import logging
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from keras import ops

from keras_dml import losses
from keras_dml.layers import EmbeddingQueue
from keras_dml.losses.composite import joined
from keras_dml.losses.mining import DistanceWeighted, Miner
from keras_dml.methods._diva.mining import (
    IntraClass,
    PermutedLabels,
    SharedClasses,
)
from keras_dml.methods.declaration import Arguments
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import IntArray, Shape, Tensor

TaskName: TypeAlias = Literal["discriminative", "dance", "shared", "intra"]
Shared: TypeAlias = Literal["strict", "negative_only", "permuted"]

TASKS: tuple[TaskName, ...] = get_args(TaskName)
"""Names of all tasks, in the order of the released code."""

logger = logging.getLogger(__name__)


class Task(SerializableLayer):
    """Base class of tasks, which train one (B, D) embedding.

    A task does not know which embedding it trains: a head of DiVA, a slice, or
    a composite of DCML.

    Call arguments:
        embeddings: (B, D), unit rows.
        labels: (B,) integer class ids, the target named `label`.
        keys: (B, D), the output of a momentum network for a second view of the
            same images, if `needs_keys`.

    Returns:
        (B,) float32, or a dict with one such tensor per term.

    Attributes:
        label: The target that it separates by.
        needs_keys: Whether the task compares with a second view.
        label_limit: Upper bound of class ids, exclusive; None for no bound.
        needs_positives: Whether a batch without positive pairs teaches the
            task nothing.
        needs_negatives: Whether a batch with a single class teaches the task
            nothing.
    """

    label = "label"
    needs_keys = False
    needs_positives = False
    needs_negatives = False
    label_limit: int | None = None

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)

    def call(
        self,
        embeddings: Tensor,
        labels: Tensor,
        keys: Tensor | None = None,
        images: Tensor | None = None,
    ) -> Tensor:
        raise NotImplementedError

    @property
    def term_weights(self) -> dict[str, Any]:
        """The terms of the task, and their relative weights."""
        return {self.name: 1.0}

    def after_step(self, keys: Tensor) -> None:
        """Called after the update, if `needs_keys`."""

    def remember(self, embeddings: Tensor, labels: Tensor) -> None:
        """Called after the update with the data that the step trained on."""

    def compute_output_shape(self, embeddings_shape: Shape) -> Shape:
        return (embeddings_shape[0],)


@register
class LossTask(Task):
    """A metric loss as a task, which owns the variables of the loss.

    With several losses, each is a term, named after the task and the loss.

    Args:
        loss: See `baseline`.
        distinct: Whether to compare only different images. A batch contains an
            image twice if its class has fewer images than a batch takes.
        **kwargs: Passed to `keras.layers.Layer`.
    """

    def __init__(
        self, loss: Any, distinct: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.loss = losses.get(loss)
        self.distinct = distinct

    @property
    def term_weights(self) -> dict[str, Any]:
        return joined(self.name, self.loss.term_weights)

    @property
    def label_limit(self) -> int | None:  # type: ignore[override]
        return self.loss.num_classes

    @property
    def needs_positives(self) -> bool:  # type: ignore[override]
        return self.loss.needs_positives

    @property
    def needs_negatives(self) -> bool:  # type: ignore[override]
        return self.loss.needs_negatives

    def build(self, embeddings_shape: Shape) -> None:
        self.loss.build(self, embeddings_shape[-1])

    def call(
        self,
        embeddings: Tensor,
        labels: Tensor,
        keys: Tensor | None = None,
        images: Tensor | None = None,
    ) -> Tensor:
        mask = None
        if self.distinct and images is not None:
            mask = distinct_images(images)
        terms = self.loss.term_values(labels, embeddings, mask=mask)
        values = joined(self.name, terms)
        return values if len(values) > 1 else values[self.name]

    def remember(self, embeddings: Tensor, labels: Tensor) -> None:
        self.loss.remember(labels, embeddings)


def distinct_images(images: Tensor) -> Tensor:
    """The pairs of different images in a batch, without repetitions.

    Args:
        images: (B,) integers: the image of each row.

    Returns:
        (B, B) boolean: true if row j is the first with its image, which is not
        that of row i. The two pairs of any triplet in a row then cover three
        images.
    """
    same = ops.equal(images[:, None], images[None, :])
    is_first = ops.equal(
        ops.argmax(same, axis=0), ops.arange(ops.shape(images)[0])
    )
    return ops.logical_and(ops.logical_not(same), is_first[None, :])


@register
class DaNCETask(Task):
    """Distance-adapted NCE against a queue of momentum keys (Eq. 6).

    Args:
        queue_size: Number of keys that serve as negatives, N.
        temperature: τ.
        weighting: See `losses.nce`: "queue_axis", "batch_axis", "paper", or
            None for plain NCE (Eq. 5).
        limit: λ of "paper".
        **kwargs: Passed to `keras.layers.Layer`.
    """

    needs_keys = True

    def __init__(
        self,
        queue_size: int = 3360,
        temperature: float = 0.1,
        weighting: str | None = "queue_axis",
        limit: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.queue_size = queue_size
        self.temperature = temperature
        self.weighting = weighting
        self.limit = limit

    def build(self, embeddings_shape: Shape) -> None:
        self.queue = EmbeddingQueue(
            self.queue_size, embeddings_shape[-1], name="queue"
        )

    def call(
        self,
        embeddings: Tensor,
        labels: Tensor,
        keys: Tensor | None = None,
        images: Tensor | None = None,
    ) -> Tensor:
        return losses.nce(
            embeddings,
            keys,
            self.queue.embeddings,
            self.queue.filled,
            temperature=self.temperature,
            weighting=self.weighting,
            limit=self.limit,
        )

    def after_step(self, keys: Tensor) -> None:
        self.queue.enqueue(keys)


def diva_tasks(
    names: Sequence[str] = TASKS,
    loss: Any = "margin",
    auxiliary_loss: Any = None,
    shared: str = "strict",
    **dance: Any,
) -> list[Task]:
    """Creates the tasks of DiVA, for embeddings of any origin.

    Args:
        names: Names in `TASKS`, in order; a repeated name gives a separate
            task.
        loss: The loss of the discriminative task, see `baseline`.
        auxiliary_loss: The loss of the shared and the intra-class task, which
            must accept `mining`. None: `loss`.
        shared: How the class-shared task draws its triplets. "strict": from
            three different classes, positive and negative both by distance.
            "negative_only": the positive uniformly. "permuted" (the released
            code): `loss` without changes, on shuffled labels.
        **dance: Arguments of `DaNCETask`.

    Returns:
        One task per name, with that name; the second of the same name is
        called "discriminative_2", and so on.

    Raises:
        ValueError: If a name or `shared` is unknown, or a loss does not accept
            mining although a task needs it.
    """
    if not names:
        raise ValueError(
            f"`tasks` of diva must name at least one of {TASKS}. Received: "
            f"tasks={names!r}."
        )
    auxiliary = loss if auxiliary_loss is None else auxiliary_loss
    tasks: list[Task] = []
    for i, kind in enumerate(names):
        count = list(names[: i + 1]).count(kind)
        name = kind if count == 1 else f"{kind}_{count}"
        if kind == "dance":
            tasks.append(DaNCETask(name=name, **dance))
        elif kind == "discriminative":
            tasks.append(LossTask(losses.get(loss).copy(), name=name))
        else:
            base = _with_triplets(kind, shared, losses.get(auxiliary))
            tasks.append(LossTask(base, kind == "intra", name=name))
    return tasks


def main_task(names: Sequence[str]) -> int:
    """The task that the others support: "discriminative", or the first."""
    return names.index("discriminative") if "discriminative" in names else 0


def _with_triplets(
    kind: str, shared: str, loss: losses.MetricLoss
) -> losses.MetricLoss:
    """A copy of a loss, or of several, that uses a task's own triplets."""
    if not isinstance(loss, losses.WeightedSum):
        return loss.copy(mining=_mining(kind, shared, loss))
    copies = {
        name: _with_triplets(kind, shared, part)
        for name, part in loss.losses.items()
    }
    return losses.WeightedSum(copies, loss.weights)


def _mining(kind: str, shared: str, loss: losses.MetricLoss) -> Miner:
    if not isinstance(loss, losses.PairLoss):
        raise ValueError(
            f'`loss` of diva must accept `mining`, because its task "{kind}" '
            f"uses its own triplets. Received: {loss!r}. Use "
            'auxiliary_loss="margin" or "triplet", or remove the task from '
            "`tasks`."
        )
    if kind == "intra":
        return IntraClass()
    if shared == "permuted":
        return PermutedLabels(loss.mining)
    bounds: tuple[float, ...] = ()
    if isinstance(loss.miner, DistanceWeighted):
        bounds = loss.miner.cutoff, loss.miner.max_distance
    is_strict = shared == "strict"
    return SharedClasses("distance" if is_strict else "uniform", *bounds)


def warn_without_triplets(
    method: Arguments, labels: IntArray, images: int
) -> None:
    """Warns if the task "intra" would learn nothing.

    Args:
        method: The arguments of `diva`.
        labels: The class of every training image.
        images: Number of images per class in a batch.
    """
    if "intra" not in method["tasks"]:
        return
    _, counts = np.unique(labels, return_counts=True)
    most = min(images, int(counts.max()))
    if most < 3:
        logger.warning(
            'The task "intra" of diva needs three images per class in a '
            "batch, but there are at most %d: it will learn nothing. Use "
            "`images_per_class` of 3 or more in the sampler, or remove it "
            "from `tasks`.",
            most,
        )
