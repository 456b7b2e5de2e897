"""MetricLoss: the base class of losses on embeddings, and their registry.

It is one class and therefore one file; a third of it documents the shapes and
rules that all losses share.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
from keras import ops
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from keras_dml.losses.labels import (
    ONE_HOT,
    are_relations,
    check_label_kind,
    check_order,
    conversion_of,
    dtype_name,
    is_multi_hot,
    is_one_hot,
    label_tensors,
    relations,
    values_of,
)
from keras_dml.losses.pairs import Batch, PairWeights
from keras_dml.losses.reductions import (
    ReductionLike,
    check_reduction,
    reduce_terms,
    sum_terms,
)
from keras_dml.utils.arguments import check_not_empty
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import (
    Serializable,
    SerializableRegistry,
    check_saveable,
)
from keras_dml.utils.types import Config, Shape, Tensor, Tensors

_FUNCTIONS = ("function", "distance", "reduction")

METRIC = "metric"
"""Name of the term of a loss that has only one."""


class MetricLoss(Serializable, keras.losses.Loss):
    """Base class of all losses on embeddings.

    A loss can be called in two ways. Plain Keras, with `compile(loss=...)`,
    calls `loss(labels, embeddings, sample_weight)`. The objectives of this
    library call `per_example`, which can also compare with references, and
    compute the average themselves. Both use `call`, which subclasses implement:
    `PairLoss` and `ProxyLoss` do so in terms of pairs and proxies.

    Args:
        reduction: How terms become one number: "mean", their sum divided by
            their number; "mean_nonzero", by the number of those above 0;
            "sum_over_pairs", by the number of examples, B. Or your own: another
            name in `keras_dml.losses.REDUCTIONS`, or a function like those.
        normalize: Whether to L2-normalize the embeddings first. This has no
            effect on embeddings of unit length; a zero row stays zero.
        name: Name of the instance.

    Attributes:
        weights_pairs: Whether the loss supports `pair_weights`.
        takes_references: Whether the loss can compare with references.
        needs_positives: Whether the loss learns nothing from a batch in which
            no two examples have the same class.
        needs_negatives: Whether the loss learns nothing, or only to collapse,
            from a batch with a single class.
        needs_triplets: Whether the loss learns nothing from an example without
            both a positive and a negative.
        num_classes: Number of classes, if the loss has weights for each class:
            class ids must be below it. Otherwise None.

    Some gradients, and those of all distances, are written by hand. They are
    exact in reverse mode; forward mode (`jax.jvp`) is not available.

    Losses can be added, and multiplied by numbers, which results in a
    `WeightedSum`: `TripletLoss() + 0.5 * MultiSimilarityLoss()`.

    Raises:
        ValueError: If `reduction` is unknown.
    """

    weights_pairs = False
    takes_references = True
    __array_ufunc__ = None  # NumPy's numbers then leave `*` to the loss.
    needs_positives = True
    needs_negatives = True
    needs_triplets = False
    num_classes: int | None = None

    def __init__(
        self,
        reduction: ReductionLike = "mean",
        normalize: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.reduction = check_reduction(type(self).__name__, reduction)
        self.normalize = normalize
        self._average = _Average(name=self.name)

    @property
    def owns_variables(self) -> bool:
        """Whether the loss has variables, which a layer must own."""
        return False

    @property
    def has_memory(self) -> bool:
        """Whether the loss stores past batches; see `remember`."""
        return False

    @property
    def term_weights(self) -> dict[str, Any]:
        """The default weights of the terms by name; a model may replace them.

        Most losses have a single term, "metric". A `WeightedSum` has one for
        each of its losses.
        """
        return {METRIC: 1.0}

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        """Creates the variables of the loss in the layer that will own them.

        Args:
            owner: The layer whose `build` calls this method, so that the
                variables belong to the model; see `add_loss_variable`.
            embedding_dim: Dimensions of the embeddings, D.
        """

    def term_values(
        self, labels: Tensor, embeddings: Tensor, **kwargs: Any
    ) -> Tensors:
        """Computes the unweighted terms of the loss for every example.

        Objectives return these terms, so that each of them is logged.

        Args:
            labels: As for `per_example`, like all other arguments.
            embeddings: (B, D).
            **kwargs: `ref_labels` and so on.

        Returns:
            A dict of (B,) tensors, with the names of `term_weights`.
        """
        return {METRIC: self.per_example(labels, embeddings, **kwargs)}

    def remember(
        self, labels: Tensor, embeddings: Tensor, when: Tensor | None = None
    ) -> None:
        """Stores the batch of a step; called once after each update.

        Args:
            labels: (B,) integer class ids.
            embeddings: (B, D).
            when: Scalar boolean: whether to store the batch. None: always.
        """

    def start_from(
        self,
        parts: "Sequence[MetricLoss]",
        class_means: Tensor | None = None,
    ) -> None:
        """Initializes the loss from copies trained on slices of the embedding.

        Called when both are built. By default, the variables are left as they
        are; losses override this if the variables of the parts have a meaning
        for the whole.

        Args:
            parts: A copy for each of the K slices. Concatenated and divided by
                √K, the slices form the embedding. Losses that gain from class
                means may be given none.
            class_means: (C, D): the mean embedding of each class, to be used as
                initial proxies. None: use the proxies of the parts.
        """

    def per_example(
        self,
        labels: Tensor,
        embeddings: Tensor,
        ref_labels: Tensor | None = None,
        ref_embeddings: Tensor | None = None,
        pair_weights: PairWeights | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Computes the loss of every example; its mean is the reduced loss.

        Args:
            labels: (B,) class ids, integers or strings, or a (B, R) integer
                relation matrix (1 positive, 0 negative, −1 ignored). Booleans,
                (B, C), are several labels per example; examples that share a
                label are positive, see `losses.relations`.
            embeddings: (B, D) anchors, of any floating dtype.
            ref_labels: (R,) class ids of the references, unless `labels`
                is a relation matrix.
            ref_embeddings: (R, D) references to compare with (a queue, a
                gallery, a second view). None compares the batch with itself. No
                pair with a reference counts as a self-pair; mark self-pairs by
                −1 in a relation matrix.
            pair_weights: `(positive, negative)`, (B, R) float each, 0 or more:
                the weights of positive and negative pairs. They do not affect
                mining, and no gradient passes through them. The weight of a
                pair multiplies its term if pairs are the terms of the loss, its
                exponential in sums of exponentials, and its count in
                histograms; the term of a triplet is multiplied by the weights
                of both of its pairs. The number of terms that a mean divides by
                does not change. None is the same as ones.
            mask: (B, R) boolean: the pairs to consider; others are neither
                positive nor negative. None: all pairs.

        Returns:
            (B,) float32. The loss of an anchor without a valid pair is exactly
            0; that of an anchor with a NaN or infinite embedding is NaN.

        Raises:
            ValueError: If shapes are wrong or references are incomplete, if
                labels are floats or one-hot, or if the loss does not support
                pair weights.
        """
        name = type(self).__name__
        check_order(name, labels, embeddings)
        if is_multi_hot(labels):
            labels, ref_labels = relations(labels, ref_labels), None
        label_ids, ref_label_ids = label_tensors(
            name, labels, ref_labels, by_class=self.num_classes is not None
        )
        batch = Batch(
            label_ids,
            _to_float32(embeddings),
            ref_label_ids,
            None if ref_embeddings is None else _to_float32(ref_embeddings),
            mask=None if mask is None else ops.convert_to_tensor(mask),
        )
        self._check(batch)
        if pair_weights is not None:
            weights = self._check_weights(pair_weights, batch)
            batch = batch._replace(pair_weights=weights)
        # A sum is finite only if all of its terms are.
        finite = ops.isfinite(ops.sum(batch.embeddings, axis=1))
        if len(batch.labels.shape) == 2 and batch.ref_embeddings is None:
            finite = ops.logical_and(finite, are_relations(name, batch.labels))
        if self.normalize:
            batch = batch._replace(embeddings=l2_normalize(batch.embeddings))
            if ref_embeddings is not None:
                refs = l2_normalize(batch.ref_embeddings)
                batch = batch._replace(ref_embeddings=refs)
        return ops.where(finite, self.call(batch), float("nan"))

    def call(self, batch: Batch) -> Tensor:
        """Computes the result of `per_example` for validated tensors.

        Embeddings are float32, and of unit length if `normalize`.
        """
        raise NotImplementedError

    def reduce(
        self,
        terms: Tensor,
        counts: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Reduces (B,) or (B, T) terms to (B,) values, whose mean is the loss.

        Args:
            terms: As for `keras_dml.losses.sum_terms`.
            counts: Likewise; None counts every term once.
            weights: Likewise.
        """
        counts = ops.ones_like(terms) if counts is None else counts
        return reduce_terms(sum_terms(terms, counts, weights), self.reduction)

    def __call__(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        labels = y_true if hasattr(y_true, "shape") else np.asarray(y_true)
        if len(labels.shape) == 2 and labels.shape[-1] == 1:
            labels = labels[:, 0]
        if in_symbolic_scope() and "float" in dtype_name(labels):
            # Keras builds a model for replicas with the mean of their labels.
            labels = ops.cast(labels, "int64")
        values = self.per_example(labels, y_pred)
        return self._average(values, values, sample_weight)

    def copy(self, **changes: Any) -> "MetricLoss":
        """Returns a loss with the same arguments, but its own variables.

        Args:
            **changes: Arguments to change.
        """
        functions = self._functions()
        settings = self.serialized_arguments(without=functions)
        config: Config = {**settings, **functions, **changes}
        return type(self).from_config(config)

    def get_config(self) -> Config:
        for name, value in self._functions().items():
            check_saveable(type(self).__name__, name, value)
        return super().get_config()

    def _functions(self) -> dict[str, Any]:
        """The arguments that are functions of the user's own, by name."""
        values = {name: getattr(self, name, None) for name in _FUNCTIONS}
        return {name: x for name, x in values.items() if callable(x)}

    def __add__(self, other: Any) -> "MetricLoss":
        return self if _is_zero(other) else _weighted_sum().of(self, other)

    def __radd__(self, other: Any) -> "MetricLoss":
        # `sum` begins with 0.
        return self if _is_zero(other) else _weighted_sum().of(other, self)

    def __mul__(self, weight: Any) -> "MetricLoss":
        return _weighted_sum().of(self).times(weight)

    __rmul__ = __mul__

    def _check(self, batch: Batch) -> None:
        name, labels = type(self).__name__, batch.labels
        if 0 in batch.size[:1]:
            check_not_empty(name, "embeddings", ())
        ranks = len(labels.shape), len(batch.embeddings.shape)
        if ranks not in ((1, 2), (2, 2)):
            raise ValueError(
                f"{name} takes (B,) class ids or a (B, R) relation matrix, "
                "and (B, D) embeddings. Received: labels of shape "
                f"{tuple(labels.shape)}, embeddings of shape "
                f"{tuple(batch.embeddings.shape)}."
            )
        is_half = (batch.ref_labels is None) != (batch.ref_embeddings is None)
        if ranks[0] == 1 and is_half:
            raise ValueError(
                f"`ref_labels` and `ref_embeddings` of {name} must be given "
                f"together. Received: ref_labels={batch.ref_labels}, "
                f"ref_embeddings={batch.ref_embeddings}. Pass both, or "
                "describe the pairs by a (B, R) relation matrix as `labels`."
            )
        if ranks[0] == 2 and batch.ref_labels is not None:
            raise ValueError(
                f"`ref_labels` of {name} must be None if `labels` is a (B, R) "
                "relation matrix. Received: both, with labels of shape "
                f"{tuple(labels.shape)}. Use ref_labels=None."
            )
        if ranks[0] == 1 and not _match(labels.shape, batch.size[:1]):
            raise ValueError(
                f"`labels` of {name} must have one entry per embedding. "
                f"Received: {labels.shape[0]} labels for {batch.size[0]} "
                "embeddings."
            )
        if ranks[0] == 2:
            self._check_relations(batch)
        for ids in (batch.labels, batch.ref_labels):
            if ids is not None:
                dtype = dtype_name(ids)
                check_label_kind(name, "labels", dtype, ids.shape, ids)

    def _check_relations(self, batch: Batch) -> None:
        name, shape = type(self).__name__, tuple(batch.labels.shape)
        if not _match(shape, batch.size):
            raise ValueError(
                f"The relation matrix of {name} must have one row per anchor "
                f"and one column per reference, here {batch.size}. Received: "
                f"labels of shape {shape}. {conversion_of(batch.labels)}"
            )
        if batch.ref_embeddings is not None:
            return
        # Relations of batches of any size have any number of columns.
        has_fixed_columns = shape[0] is None and shape[1] is not None
        if has_fixed_columns or is_one_hot(values_of(batch.labels)):
            raise ValueError(
                f"{name} takes class ids, or a relation matrix that marks "
                f"positive pairs. Received: labels of shape {shape}, which are "
                f"one-hot. {ONE_HOT}"
            )

    def _check_weights(
        self, pair_weights: PairWeights, batch: Batch
    ) -> PairWeights:
        name = type(self).__name__
        if not self.weights_pairs:
            classes = [entry.value for entry in LOSSES.values()]
            can = ", ".join(c.__name__ for c in classes if c.weights_pairs)
            raise ValueError(
                f"{name} does not support `pair_weights`, because it does not "
                "consist of pairs of examples alone. Pass None, or use one of "
                f"{can}."
            )
        if not isinstance(pair_weights, tuple | list):
            pair_weights = (pair_weights,)
        weights = [_to_float32(values) for values in pair_weights]
        shapes = [tuple(values.shape) for values in weights]
        if len(shapes) != 2 or not all(_match(s, batch.size) for s in shapes):
            raise ValueError(
                f"`pair_weights` of {name} must be two matrices, `(positive, "
                "negative)`, with one row per anchor and one column per "
                f"reference, here {batch.size}. Received: {len(shapes)} of the "
                f"shapes {shapes}."
            )
        return weights[0], weights[1]


class _Average(keras.losses.Loss):
    """The mean of finished (B,) values.

    Keras weights them by `sample_weight` and scales them for distribution
    strategies.
    """

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return y_pred


LOSSES: SerializableRegistry[MetricLoss] = SerializableRegistry(
    "loss", MetricLoss
)
"""Every loss by the name that `get` and recipes take.

`examples=` of its registration are values, other than the defaults, of
arguments that few losses have; the tests of all losses use them.
"""

COMPOSITES: SerializableRegistry[MetricLoss] = SerializableRegistry(
    "loss", MetricLoss
)
"""Losses made of other losses, by the name that `get` and recipes take."""

LossLike: TypeAlias = (
    MetricLoss
    | str
    | Config
    | list[Any]
    | keras.losses.Loss
    | Callable[..., Any]
)
"""What `losses.get` takes: a loss, its name or config; several, in a dict by
name or a list; or a function."""


def _weighted_sum() -> Any:
    """The class of sums of losses, which is derived from `MetricLoss`."""
    return COMPOSITES["weighted_sum"].value


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0


def _match(shape: Shape, expected: Shape) -> bool:
    """Whether shapes agree as far as both are known."""
    return len(shape) == len(expected) and all(
        None in pair or pair[0] == pair[1]
        for pair in zip(shape, expected, strict=True)
    )


def _to_float32(x: Tensor) -> Tensor:
    return ops.cast(ops.convert_to_tensor(x), "float32")
