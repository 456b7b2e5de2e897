"""EmbeddingQueue: the most recent embeddings, as references."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Count, Shape, Tensor


def has_narrow_ids() -> bool:
    """Whether the backend turns 64-bit integers into 32-bit ones."""
    if keras.backend.backend() != "jax":
        return False
    import jax

    return not jax.config.jax_enable_x64


class State(NamedTuple):
    """The content of a queue.

    Attributes:
        embeddings: (N, D) float32.
        labels: (N,) int64, or (N, C) boolean.
        filled: (N,) boolean: which slots hold an embedding.
        rows: (N,) int32: the row in the batch that a slot comes from; −1 if it
            is from an earlier batch, or empty.
    """

    embeddings: Tensor
    labels: Tensor
    filled: Tensor
    rows: Tensor


@register
class EmbeddingQueue(SerializableLayer):
    """A first-in-first-out queue of embeddings and their labels.

    This is the memory queue of DiVA and MoCo (keys of a momentum network) and
    the cross-batch memory (XBM) of Wang et al. (embeddings of past batches).
    Its content is saved with the model. Empty slots are masked and never
    compared.

    Called with labels, it returns the references for any loss on pairs:
    `loss.per_example(relation, embeddings, ref_embeddings=memory)`. `enqueue`
    replaces the oldest embeddings. Call it after the step, in
    `Objective.after_step`, so that no embedding is compared with itself.

    Args:
        size: Number of embeddings held, N.
        embedding_dim: Dimensions of an embedding, D.
        num_labels: C, if each embedding has several of C labels; labels are
            then (B, C) booleans throughout. None: each embedding has one class
            id.
        **kwargs: Passed to `keras.layers.Layer`. `dtype` defaults to
            float32, whatever the global policy.

    Call arguments:
        labels: (B,) integer class ids of the anchors, or (B, C) booleans, where
            embeddings that share a label are positive.

    Returns:
        `(memory, relation)`: the embeddings, (N, D) float32, and an int32
        (B, N) relation matrix: 1 for a positive, 0 for a negative, −1 for
        an empty slot.

    Raises:
        ValueError: If `size`, `embedding_dim` or `num_labels` is not positive.

    Requirements:
        A relation matrix does not contain the class of an anchor. Losses that
        need it (such as a β per class) take `ref_labels` and a `mask` instead,
        as returned by `after`. With several replicas, the queue holds what the
        first one enqueues. Gather the embeddings of all replicas first, as
        `MetricModel` does for `losses.CrossBatchMemory`.

    Example: keys of a momentum network, as references for any loss on
    pairs. `losses.CrossBatchMemory` is a memory of past batches, ready to
    use.

    ```python
    @keras.saving.register_keras_serializable(package="my_project")
    class Queued(keras_dml.LossObjective):
        terms = ("batch", "memory")

        def __init__(self, loss, size, **kwargs):
            super().__init__(loss, **kwargs)
            self.size = size

        def build(self, outputs_shape):
            super().build(outputs_shape)  # The variables of the loss.
            dim = outputs_shape["embedding"][-1]
            self.queue = EmbeddingQueue(self.size, dim, name="queue")

        def call(self, outputs, targets):
            embeddings = outputs["embedding"]
            memory, relation = self.queue(targets["label"])
            return {
                "batch": self.loss.per_example(targets["label"], embeddings),
                "memory": self.loss.per_example(
                    relation, embeddings, ref_embeddings=memory
                ),
            }

        def after_step(self, outputs, targets):
            keys = outputs["momentum_embedding"]
            self.queue.enqueue(keys, targets["label"])
    ```

    Reference:
        He et al., "Momentum Contrast for Unsupervised Visual
        Representation Learning", CVPR 2020; Wang et al., "Cross-Batch
        Memory for Embedding Learning", CVPR 2020.
    """

    def __init__(
        self,
        size: Count,
        embedding_dim: Count,
        num_labels: Count | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.size = size
        self.embedding_dim = embedding_dim
        self.num_labels = num_labels
        of_each: Shape = () if num_labels is None else (num_labels,)
        ids = "int32" if has_narrow_ids() else "int64"
        self.label_dtype = "bool" if of_each else ids
        self.embeddings = self._weight("embeddings", (size, embedding_dim))
        self.labels = self._weight("labels", (size, *of_each), self.label_dtype)
        self.pointer = self._weight("pointer", (), "int32")
        self.count = self._weight("count", (), "int32")
        # No shape depends on the inputs.
        self.built = True

    def _weight(
        self, name: str, shape: Shape, dtype: str = "float32"
    ) -> keras.Variable:
        return self.add_weight(
            shape=shape,
            initializer="zeros",
            dtype=dtype,
            trainable=False,
            autocast=False,
            aggregation="only_first_replica",
            name=name,
        )

    @property
    def filled(self) -> Tensor:
        """(N,) boolean: which slots hold an embedding."""
        return ops.arange(self.size, dtype="int32") < self.count

    def call(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        labels = ops.cast(labels, self.label_dtype)
        if self.num_labels is None:
            same = ops.equal(labels[:, None], ops.copy(self.labels)[None, :])
        else:
            queue_labels = ops.cast(self.labels, "float32")
            labels = ops.cast(labels, "float32")
            same = ops.matmul(labels, ops.transpose(queue_labels)) > 0
        relation = ops.where(self.filled[None, :], ops.cast(same, "int32"), -1)
        return ops.copy(self.embeddings), relation

    def enqueue(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        when: Tensor | None = None,
    ) -> None:
        """Replaces the oldest embeddings.

        If a batch is larger than the queue, only its end is kept.

        Args:
            embeddings: (B, D).
            labels: (B,) integer class ids, or (B, C) booleans; 0 if they will
                never be needed.
            when: Scalar boolean: whether to enqueue at all. None: always.
        """
        content = self.after(embeddings, labels)
        added = ops.minimum(ops.shape(embeddings)[0], self.size)
        if when is not None:
            old, ids = map(
                ops.convert_to_tensor, (self.embeddings, self.labels)
            )
            content = content._replace(
                embeddings=ops.where(when, content.embeddings, old),
                labels=ops.where(when, content.labels, ids),
            )
            added = ops.where(when, added, 0)
        self.embeddings.assign(content.embeddings)
        self.labels.assign(content.labels)
        self.pointer.assign((self.pointer + added) % self.size)
        self.count.assign(ops.minimum(self.count + added, self.size))

    def after(self, embeddings: Tensor, labels: Tensor | None = None) -> State:
        """The content that `enqueue` would produce; the queue is not changed.

        Args:
            embeddings: (B, D).
            labels: As for `enqueue`.
        """
        batch = ops.shape(embeddings)[0]
        embeddings = ops.cast(embeddings, "float32")[-self.size :]
        added = ops.shape(embeddings)[0]
        following = ops.arange(added, dtype="int32") + self.pointer
        slots = (following % self.size)[:, None]
        if labels is None:
            labels = ops.zeros((added, *self.labels.shape[1:]))
        labels = ops.cast(labels, self.label_dtype)[-self.size :]
        rows = ops.arange(added, dtype="int32") + (batch - added)
        none = ops.full((self.size,), -1, dtype="int32")
        return State(
            ops.scatter_update(self.embeddings, slots, embeddings),
            ops.scatter_update(self.labels, slots, labels),
            ops.arange(self.size, dtype="int32") < self.count + added,
            ops.scatter_update(none, slots, rows),
        )

    def compute_output_shape(self, labels_shape: Shape) -> tuple[Shape, Shape]:
        memory = (self.size, self.embedding_dim)
        return memory, (labels_shape[0], self.size)

    def compute_output_spec(self, labels: Tensor) -> Any:
        # Traces `call`, because the two outputs differ in dtype.
        return keras.Operation.compute_output_spec(self, labels)
