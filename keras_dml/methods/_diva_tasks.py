"""Tasks of DiVA: layers that each train one embedding, and their triplets."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, TypeAlias, get_args

import keras
import numpy as np
from keras import ops

from keras_dml import losses
from keras_dml.layers import EmbeddingQueue
from keras_dml.losses.composite import name_terms
from keras_dml.losses.mining import DistanceWeighted, Miner, Seed
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.mining.miner import Body, State, one_of_each_row
from keras_dml.losses.pairs import Pairs
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
        return name_terms(self.name, self.loss.term_weights)

    label_limit: Any = property(attrgetter("loss.num_classes"))
    needs_positives: Any = property(attrgetter("loss.needs_positives"))
    needs_negatives: Any = property(attrgetter("loss.needs_negatives"))

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
        values = name_terms(self.name, terms)
        return values if len(values) > 1 else values[self.name]

    def remember(self, embeddings: Tensor, labels: Tensor) -> None:
        self.loss.remember(labels, embeddings)


def distinct_images(images: Tensor) -> Tensor:
    """The pairs of different images in a batch, without repetitions: (B, B).

    True if row j is the first with its image, which is not that of row i. The
    two pairs of any triplet in a row then cover three images.
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
    """Warns if "intra" learns nothing of `images` of each class in a batch."""
    if "intra" not in method["tasks"]:
        return
    _, counts = np.unique(labels, return_counts=True)
    max_images = min(images, int(counts.max()))
    if max_images < 3:
        logger.warning(
            'The task "intra" of diva needs three images per class in a '
            "batch, but there are at most %d: it will learn nothing. Use "
            "`images_per_class` of 3 or more in the sampler, or remove it "
            "from `tasks`.",
            max_images,
        )


@dataclass(frozen=True)
class TripletDraw(Miner):
    """Base class of miners that draw one triplet for every anchor.

    The task determines the classes of the positive and the negative. These
    miners only work for batches that are compared with themselves.
    """

    is_random = True

    def draw(self, pairs: Pairs, seed: Seed) -> tuple[Tensor, Tensor]:
        """Two boolean (B, B) masks: the positive, and the negative.

        Each row of a mask has at most one true entry.
        """
        raise NotImplementedError

    def for_each_positive(
        self, pairs: Pairs, body: Body, initial: State, seed: Seed = None
    ) -> State:
        pairs = pairs._replace(distances=ops.stop_gradient(pairs.distances))
        positive, negative = self.draw(pairs, seed)
        complete = ops.logical_and(
            ops.any(positive, axis=1, keepdims=True),
            ops.any(negative, axis=1, keepdims=True),
        )
        positive = ops.logical_and(positive, complete)
        negative = ops.logical_and(negative, complete)
        return body(initial, positive, ops.cast(negative, "float32"))


@register
@dataclass(frozen=True)
class SharedClasses(TripletDraw):
    """Anchor, positive and negative of three different classes.

    DiVA's class-shared task learns from these triplets (Sec. 3.1). The
    negative is drawn by distance, with the probabilities of
    `DistanceWeighted`.

    Args:
        positive: How the positive is drawn: by "distance", like the negative,
            or "uniform".
        cutoff: See `DistanceWeighted`.
        max_distance: See `DistanceWeighted`.

    Requirements:
        At least three classes in a batch.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020, Eq. 3.
    """

    needs_positives = False  # Its positives are of other classes.

    positive: Literal["distance", "uniform"] = "distance"
    cutoff: float = 0.5
    max_distance: float = 1.4

    def draw(self, pairs: Pairs, seed: Seed) -> tuple[Tensor, Tensor]:
        by_distance = DistanceWeighted(self.cutoff, self.max_distance)
        if self.positive == "distance":
            weights = by_distance.probabilities(pairs)
        else:
            weights = ops.cast(pairs.negative, "float32")
        positive = _draw(weights, seed)
        # The third class differs from the positive's too.
        apart = ops.take(pairs.negative, ops.argmax(positive, axis=1), axis=0)
        third = pairs._replace(negative=ops.logical_and(pairs.negative, apart))
        return positive, _draw(by_distance.probabilities(third), seed)


@register
@dataclass(frozen=True)
class IntraClass(TripletDraw):
    """Anchor, positive and negative: three distinct images of one class.

    DiVA's intra-class task learns from these triplets (Eq. 4). Positive and
    negative are drawn uniformly.

    Rows are distinct; if a batch contains an image twice, `DivaObjective`
    excludes the second one, using `targets["index"]`.

    Requirements:
        At least three images of a class in a batch; a class with fewer
        contributes nothing.

    Deviations:
        - The released code draws with replacement, which in a batch with two
          images per class gives no triplet of distinct images.
    """

    def draw(self, pairs: Pairs, seed: Seed) -> tuple[Tensor, Tensor]:
        positive = _draw(ops.cast(pairs.positive, "float32"), seed)
        rest = ops.logical_and(pairs.positive, ops.logical_not(positive))
        return positive, _draw(ops.cast(rest, "float32"), seed)


@register
@dataclass(frozen=True)
class PermutedLabels(Miner):
    """Another strategy, with labels that are shuffled in every batch.

    This is the released form of DiVA's class-shared task.

    Args:
        mining: The strategy, see `losses.mining.get`.
    """

    mining: Any = "distance_weighted"
    is_random = True

    def pair_weights(
        self, pairs: Pairs, seed: Seed = None
    ) -> tuple[Tensor, Tensor]:
        return get_miner(self.mining).pair_weights(_permute(pairs, seed), seed)

    def for_each_positive(
        self, pairs: Pairs, body: Body, initial: State, seed: Seed = None
    ) -> State:
        miner = get_miner(self.mining)
        pairs = _permute(pairs, seed)
        return miner.for_each_positive(pairs, body, initial, seed)


def _draw(weights: Tensor, seed: Seed) -> Tensor:
    """(B, R) boolean: one entry per row, drawn in proportion to its weight."""
    uniform = keras.random.uniform(ops.shape(weights), seed=seed)
    gumbel = -ops.log(-ops.log(ops.maximum(uniform, 1e-30)))
    # Entries without weight are masked; their logarithm is of no account.
    scores = ops.log(ops.where(weights > 0, weights, 1.0)) + gumbel
    return one_of_each_row(scores, weights > 0)


def _permute(pairs: Pairs, seed: Seed) -> Pairs:
    """The same pairs, related as if the labels had been shuffled."""
    batch = ops.shape(pairs.distances)[0]
    order = ops.argsort(keras.random.uniform((batch,), seed=seed))

    def shuffle(mask: Tensor) -> Tensor:
        return ops.take(ops.take(mask, order, axis=0), order, axis=1)

    return pairs._replace(
        positive=shuffle(pairs.positive), negative=shuffle(pairs.negative)
    )
