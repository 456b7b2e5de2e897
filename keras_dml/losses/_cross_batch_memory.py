"""CrossBatchMemory: losses on pairs with embeddings of past batches."""

from operator import attrgetter
from typing import Any

import keras
from keras import ops

from keras_dml.layers.memory import EmbeddingQueue
from keras_dml.losses.base import COMPOSITES, METRIC, LossLike
from keras_dml.losses.combined import get
from keras_dml.losses.composite import CompositeLoss
from keras_dml.losses.labels import (
    Rule,
    dtype_name,
    is_multi_hot,
    relations,
)
from keras_dml.losses.variables import (
    check_not_built,
    not_built_error,
    scope_of,
)
from keras_dml.utils.types import (
    Count,
    NonNegativeInt,
    Positive,
    Tensor,
    Tensors,
)

_UNSUPPORTED = ("ref_labels", "ref_embeddings", "pair_weights", "mask")


@COMPOSITES.register("cross_batch_memory")
class CrossBatchMemory(CompositeLoss):
    r"""Cross-batch memory: a loss on pairs that include past batches.

    With the batch $X$, the memory $M$ and the `memory_weight` $w$,

    $$
    \mathcal{L} = \ell(X, X) + w \, \ell(X, M) .
    $$

    A queue keeps the last `size` embeddings seen in training, as they were at
    that time. The loss compares each example of the batch with all of them,
    which provides small batches with many more negatives, at the cost of one
    more (B, `size`) comparison. It works as long as embeddings of the same
    image change slowly from step to step, hence the warm-up.

    Terms are "memory", and "batch" if the batch is also compared with itself;
    if there are several losses, their names are appended.

    The memory belongs to the objective that builds the loss, and is saved with
    the model, so `fit` continues with the same memory. Evaluation does not
    change it. Each learner of an ensemble has its own memory.

    When to use it:
        Small batches, as on a small GPU. Embeddings must change slowly:
        use pretrained weights, a low learning rate, or a `warm_up` of
        about an epoch.

    Labels:
        (B,) class ids, integers; with `num_labels`, (B, C) booleans.

    Args:
        loss: A loss on pairs or triplets, as for `losses.get`. It may own
            variables, such as β.
        size: Number of embeddings in the memory, N; typically a fraction of the
            training set.
        memory_weight: Weight of the term "memory", unless given in
            `loss_weights`.
        batch: Whether to add the loss of the batch with itself.
        warm_up: Number of updates before the memory is filled and used; until
            then, the loss is that of the batch with itself.
        num_labels: C, if examples have several of C labels. None: each has one
            class id.
        relation_rule: When two examples with several labels are positive: if
            they share "any" label, or "all"; see `losses.relations`.
        name: Name of the instance.

    Raises:
        ValueError: If `size`, `memory_weight` or `num_labels` is not positive,
            if `relation_rule` is unknown, if the loss uses proxies or is a
            function, or if labels are not of the kind that is stored.
        RuntimeError: When called before `build`.

    Requirements:
        Labels are class ids, (B,), or, with `num_labels`, booleans, (B, C): the
        memory stores those of each embedding. With several replicas,
        `MetricModel` makes every replica remember the batches of all replicas.

    Deviations:
        - The batch is already part of the memory when it is compared, as in the
          paper, but an example is not compared with itself. The paper uses the
          loss against the memory alone, which is `batch=False`; its released
          code adds the loss of the batch, as here.
        - The released code starts after 1,000 updates; here, `warm_up` is 0 by
          default.
        - For a model with a momentum network, `ema_momentum`, the memory stores
          that network's embeddings of the second view.

    Also known as:
        - pytorch-metric-learning: `CrossBatchMemory(loss, D, memory_size)` is
          `CrossBatchMemory(loss, memory_size, batch=False)`.
        - TF Similarity: `XBM(loss, memory_size, warmup_steps)` is
          `CrossBatchMemory(loss, memory_size, batch=False,
          warm_up=warmup_steps)`.
        - Elsewhere: XBM.

    Reference:
        Wang et al., "Cross-Batch Memory for Embedding Learning", CVPR 2020,
        Algorithm 1, https://arxiv.org/abs/1912.06798.

    Example:
        ```python
        loss = CrossBatchMemory("contrastive", size=4096, warm_up=1000)
        model = keras_dml.methods.baseline(backbone, loss=loss)
        ```
    """

    owns_variables: Any = True
    has_memory: Any = True
    num_classes: Any = property(attrgetter("loss.num_classes"))
    needs_negatives: Any = property(attrgetter("loss.needs_negatives"))
    # Once it is used, the memory holds positives.
    needs_positives: Any = property(
        lambda self: self.warm_up > 0 and self.loss.needs_positives
    )

    def __init__(
        self,
        loss: LossLike,
        size: Count,
        memory_weight: Positive = 1.0,
        batch: bool = True,
        warm_up: NonNegativeInt = 0,
        num_labels: Count | None = None,
        relation_rule: Rule = "any",
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.loss = get(loss)
        self.size = size
        self.memory_weight = memory_weight
        self.batch = batch
        self.warm_up = warm_up
        self.num_labels = num_labels
        self.relation_rule = relation_rule
        self.queue: EmbeddingQueue | None = None
        if self.loss.has_memory or not self.loss.takes_references:
            raise ValueError(
                "`loss` of CrossBatchMemory must compare the batch with "
                f"references. Received: {type(self.loss).__name__}, which "
                "takes no references or has a memory of its own. Use a loss "
                "on pairs or triplets; to combine a memory with other losses, "
                'use `{"proxy_anchor": ..., "memory": '
                '{"name": "cross_batch_memory", ...}}`.'
            )

    @property
    def term_weights(self) -> dict[str, Any]:
        inner = self.loss.term_weights
        weights: dict[str, Any] = {}
        if self.batch or self.warm_up:
            weights |= _prefix_terms("batch", inner)
        memory = _prefix_terms("memory", inner)
        if self.memory_weight == 1:
            return weights | memory
        return weights | {
            term: weight * self.memory_weight for term, weight in memory.items()
        }

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        check_not_built(type(self).__name__, self.queue is not None)
        self.loss.build(owner, embedding_dim)
        with scope_of(owner):
            self.queue = EmbeddingQueue(
                self.size, embedding_dim, self.num_labels, name="queue"
            )
            self.updates = self.queue.add_weight(
                shape=(),
                initializer="zeros",
                dtype="int32",
                trainable=False,
                aggregation="only_first_replica",
                name="updates",
            )
        setattr(owner, f"{self.name}_queue", self.queue)

    def term_values(
        self, labels: Tensor, embeddings: Tensor, **kwargs: Any
    ) -> Tensors:
        self._check_call(labels, kwargs)
        queue = self._queue()
        labels = ops.cast(labels, queue.label_dtype)
        values: Tensors = {}
        is_on = ops.convert_to_tensor(self.updates) >= self.warm_up
        if self.batch or self.warm_up:
            of_batch = self.loss.term_values(
                **self._labels(labels), embeddings=embeddings
            )
            if not self.batch:
                of_batch = _only(ops.logical_not(is_on), of_batch)
            values |= _prefix_terms("batch", of_batch)
        memory = queue.after(ops.stop_gradient(embeddings), labels)
        rows = ops.arange(ops.shape(embeddings)[0], dtype="int32")
        is_other = ops.not_equal(rows[:, None], memory.rows[None, :])
        of_memory = self.loss.term_values(
            **self._labels(labels, memory.labels),
            embeddings=embeddings,
            ref_embeddings=memory.embeddings,
            mask=ops.logical_and(memory.filled[None, :], is_other),
        )
        if self.warm_up:
            of_memory = _only(is_on, of_memory)
        return values | _prefix_terms("memory", of_memory)

    def remember(
        self, labels: Tensor, embeddings: Tensor, when: Tensor | None = None
    ) -> None:
        counts = ops.ones((), "bool") if when is None else when
        is_on = ops.convert_to_tensor(self.updates) >= self.warm_up
        self._queue().enqueue(
            embeddings, labels, when=ops.logical_and(is_on, counts)
        )
        self.updates.assign_add(ops.cast(counts, "int32"))

    def _labels(self, labels: Tensor, refs: Tensor | None = None) -> Tensors:
        """Labels of the batch and of references, as arguments of the loss."""
        if self.num_labels is None or self.relation_rule == "any":
            return {"labels": labels, "ref_labels": refs}
        return {"labels": relations(labels, refs, self.relation_rule)}

    def _queue(self) -> EmbeddingQueue:
        if self.queue is None:
            name = type(self).__name__
            code = f"{name}({self.loss.name!r}, size={self.size})"
            raise not_built_error(name, code)
        return self.queue

    def _check_call(self, labels: Tensor, arguments: dict[str, Any]) -> None:
        self._queue()
        names = [x for x in _UNSUPPORTED if arguments.get(x) is not None]
        if names:
            raise ValueError(
                "CrossBatchMemory has its own references and cannot be "
                f"combined with {names}. Received: values for these. Use the "
                "loss without a memory."
            )
        shape, count = tuple(labels.shape), self.num_labels
        if count is None and len(shape) != 1:
            raise ValueError(
                "`labels` of CrossBatchMemory must be class ids, which it "
                "stores with the embeddings, and not a relation matrix. "
                f"Received: labels of shape {shape}. Use (B,) class ids, or "
                "(B, C) booleans for several labels per example, with "
                "num_labels=C."
            )
        if count is not None and not (
            is_multi_hot(labels) and shape[1] == count
        ):
            raise ValueError(
                f"`labels` of CrossBatchMemory with num_labels={count} must be "
                f"(B, {count}) booleans. Received: {dtype_name(labels)} of "
                f"shape {shape}. If the model has a `relation_rule`, which "
                "turns labels into a relation matrix, set it in "
                "CrossBatchMemory instead."
            )


def _prefix_terms(name: str, terms: dict[str, Any]) -> dict[str, Any]:
    """Prefixes the terms of the inner loss, or renames its only one."""
    if list(terms) == [METRIC]:
        return {name: terms[METRIC]}
    return {f"{name}_{term}": value for term, value in terms.items()}


def _only(when: Tensor, values: Tensors) -> Tensors:
    return {name: ops.where(when, x, 0.0) for name, x in values.items()}
