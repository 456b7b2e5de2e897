"""Tasks of DiVA: small layers, each the training signal of one embedding."""

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
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import IntArray, Shape, Tensor

TaskName: TypeAlias = Literal["discriminative", "dance", "shared", "intra"]
Shared: TypeAlias = Literal["strict", "negative_only", "permuted"]

TASKS: tuple[TaskName, ...] = get_args(TaskName)
"""Every task by its name, in the order of the released code."""

logger = logging.getLogger(__name__)


class Task(SerializableLayer):
    """Base of the tasks: what trains one (B, D) embedding.

    A task does not know which embedding it trains: a head of DiVA, a
    slice, or a composite of DCML.

    Call arguments:
        embeddings: (B, D), unit rows.
        labels: (B,) integer class ids.
        keys: (B, D), what a momentum network makes of a second view of
            the same images, if `needs_keys`.

    Returns:
        (B,) float32, or a dict with that for each of several terms.

    Attributes:
        needs_keys: Whether the task compares with a second view.
        label_limit: What class ids must be below; None for any.
        needs_positives: Whether a batch without positive pairs teaches it
            nothing.
        needs_negatives: Whether a batch of a single class teaches it
            nothing.
    """

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
        """The terms of the task, and their weights among each other."""
        return {self.name: 1.0}

    def after_step(self, keys: Tensor) -> None:
        """Called after the update, if `needs_keys`."""

    def remember(self, embeddings: Tensor, labels: Tensor) -> None:
        """Called after the update, with what the step has trained on."""

    def compute_output_shape(self, embeddings_shape: Shape) -> Shape:
        return (embeddings_shape[0],)


@register
class LossTask(Task):
    """A metric loss as a task, which owns the variables of the loss.

    Of several losses, each is a term, by its name after the task's.

    Args:
        loss: As for `baseline`.
        distinct: Whether it compares different images only. A batch has an
            image twice where its class has fewer than a batch takes.
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
    """Which pairs of a batch are two images, each other one once.

    Args:
        images: (B,) integers: which image each row is.

    Returns:
        (B, B) boolean: true where row j is the first of its image, and not
        the image of row i. Any two of a row's pairs are of three images.
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
        weighting: As for `losses.nce`: "queue_axis", "batch_axis", "paper",
            or None for plain NCE (Eq. 5).
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
    """The tasks of DiVA, ready for embeddings of any origin.

    Args:
        names: Names in `TASKS`, in order; one that comes again is a task
            of its own.
        loss: The loss of the discriminative task, as for `baseline`.
        auxiliary_loss: That of the shared and the intra-class task, which
            takes `mining`. None: `loss`.
        shared: How the class-shared task draws its triplets. "strict": of
            three mutually different classes, positive and negative both
            by distance. "negative_only": the positive uniformly.
            "permuted" (the released code): `loss` as it is, on shuffled
            labels.
        **dance: Arguments of `DaNCETask`.

    Returns:
        One task for each name, which carries the name; the second of one
        name is called "discriminative_2", and so on.

    Raises:
        ValueError: If a name or `shared` is unknown, or a loss takes no
            mining where a task needs it.
    """
    check_choice("diva", "shared", shared, get_args(Shared))
    if not names:
        raise ValueError(
            f"`tasks` of diva must name at least one of {TASKS}. Received: "
            f"tasks={names!r}."
        )
    auxiliary = loss if auxiliary_loss is None else auxiliary_loss
    tasks: list[Task] = []
    for i, kind in enumerate(names):
        check_choice("diva", "tasks", kind, TASKS)
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
    """Which task the others support: "discriminative", or the first."""
    return names.index("discriminative") if "discriminative" in names else 0


def _with_triplets(
    kind: str, shared: str, loss: losses.MetricLoss
) -> losses.MetricLoss:
    """A copy of a loss, or of each of several, with a task's own triplets."""
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
            f'`loss` of diva must take `mining`, for its task "{kind}" '
            f"brings triplets of its own. Received: {loss!r}. Use "
            'auxiliary_loss="margin" or "triplet", or leave the task out of '
            "`tasks`."
        )
    if kind == "intra":
        return IntraClass()
    if shared == "permuted":
        return PermutedLabels(loss.mining)
    positive = "distance" if shared == "strict" else "uniform"
    if isinstance(loss.miner, DistanceWeighted):
        return SharedClasses(
            positive, loss.miner.cutoff, loss.miner.max_distance
        )
    return SharedClasses(positive)


def warn_without_triplets(
    method: Arguments, labels: IntArray, images: int
) -> None:
    """Warns if the task "intra" would learn nothing.

    Args:
        method: The arguments of `diva`.
        labels: The class of every training image.
        images: Images of a class in a batch.
    """
    if "intra" not in method["tasks"]:
        return
    _, counts = np.unique(labels, return_counts=True)
    most = min(images, int(counts.max()))
    if most < 3:
        logger.warning(
            'The task "intra" of diva needs three images of a class in a '
            "batch, and there are at most %d: it will learn nothing. Use "
            "`images_per_class` of 3 or more in the sampler, or leave it out "
            "of `tasks`.",
            most,
        )
