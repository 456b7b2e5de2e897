"""SampledClasses: the classes of a batch and a random sample of the rest."""

from numbers import Real

import keras
from keras import ops

from keras_dml.utils.types import Tensor


class SampledClasses:
    """Draws the classes to use in a step.

    The sample contains all classes of the batch, and others with equal
    probability, without repetition. Draws come from a separate generator and
    depend on nothing else, so replicas that see all labels draw the same
    classes.

    Args:
        owner: Name of the loss, for errors.
        num_classes: Number of classes, C.
        share: Fraction of the classes to draw.
        seed: Seed of the generator. None: determined by
            `keras.utils.set_random_seed`.

    Attributes:
        count: Number of classes drawn, S.

    Raises:
        ValueError: If `share` is not in (0, 1], or amounts to fewer than two
            classes.

    Reference:
        An et al., "Killing Two Birds with One Stone: Efficient and Robust
        Training of Face Recognition CNNs by Partial FC", CVPR 2022, Sec. 3.2,
        https://arxiv.org/abs/2203.15565.
    """

    def __init__(
        self, owner: str, num_classes: int, share: float, seed: int | None
    ) -> None:
        self.owner = owner
        self.num_classes = num_classes
        self.share = share
        is_number = isinstance(share, Real)
        if not (is_number and 2 / num_classes <= share <= 1):
            raise ValueError(
                f"`class_share` of {owner} must be at most 1 and amount to at "
                f"least two of the num_classes={num_classes} classes. "
                f"Received: class_share={share!r}. Use 1 to compare with all."
            )
        self.count = round(share * num_classes)
        self.seed_generator = keras.random.SeedGenerator(seed)

    def draw(self, labels: Tensor) -> Tensor:
        """(S,) int32 class ids in ascending order.

        Args:
            labels: (B,) class ids; those out of range are clipped.

        Raises:
            ValueError: If a batch has more examples than there are classes
                to draw, and they might all differ.
        """
        size = labels.shape[0]
        if size is not None and size > self.count < self.num_classes:
            raise ValueError(
                f"`class_share` of {self.owner} must leave room for all "
                "classes in a batch, which can be as many as its examples. "
                f"Received: class_share={self.share} of "
                f"num_classes={self.num_classes}, {self.count} classes, for a "
                f"batch of {size}. Use "
                f"class_share={min(1.0, size / self.num_classes):.3g} or more, "
                "or smaller batches."
            )
        order = keras.random.uniform(
            (self.num_classes,), seed=self.seed_generator
        )
        batch_ids = ops.clip(ops.cast(labels, "int32"), 0, self.num_classes - 1)
        # Classes of the batch come before all others.
        first = ops.full(ops.shape(batch_ids), 2.0)
        order = ops.scatter_update(order, batch_ids[:, None], first)
        _, ids = ops.top_k(order, self.count, sorted=False)
        return ops.sort(ops.cast(ids, "int32"))


def positions_of(labels: Tensor, ids: Tensor) -> Tensor:
    """(B,) int32: position of each label in ascending ids; −1 if absent."""
    labels = ops.cast(labels, ids.dtype)
    positions = ops.minimum(ops.searchsorted(ids, labels), ids.shape[0] - 1)
    is_present = ops.equal(ops.take(ids, positions, axis=0), labels)
    return ops.where(is_present, positions, -1)


def rows_of_classes(
    table: keras.Variable, ids: Tensor, rows_each: int
) -> Tensor:
    """The rows of some classes, `rows_each` for each, in the order of `ids`.

    The rest of the table is not read, and the gradient is one of these rows.
    """
    indices = ids[:, None] * rows_each + ops.arange(rows_each, dtype="int32")
    indices = ops.reshape(indices, (-1,))
    # A step collects the indices if gradients do not contain them (JAX).
    rows_read = getattr(table, "rows_read", None)
    if rows_read is not None:
        rows_read.append(indices)
    return rows_at(table, indices)


def rows_at(table: keras.Variable, indices: Tensor) -> Tensor:
    """Rows of a variable; a replica reads its own copy.

    `ops.take` reads all of a variable first, and TensorFlow copies what it
    reads of one that is ever updated by row.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.take(table, indices, axis=0)
    import tensorflow as tf

    copies = getattr(table.value, "values", (table.value,))
    context = tf.distribute.get_replica_context()
    number = context.replica_id_in_sync_group if context else 0
    local_copy = copies[tf.get_static_value(number) % len(copies)]
    return local_copy.sparse_read(indices)


def write_rows(table: keras.Variable, indices: Tensor, rows: Tensor) -> None:
    """Writes rows of a variable, (S, …), to distinct indices, (S,)."""
    if keras.backend.backend() != "tensorflow":
        table.assign(ops.scatter_update(table, indices[:, None], rows))
        return
    import tensorflow as tf

    table.value.scatter_update(tf.IndexedSlices(rows, indices))
