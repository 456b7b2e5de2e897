"""Pairs: positive and negative pairs, and their distances."""

from typing import NamedTuple, TypeAlias

from keras import ops

from keras_dml.losses import distances as distances_lib
from keras_dml.losses.distances import Distance, DistanceLike, diagonal
from keras_dml.utils.types import Shape, Tensor

PairWeights: TypeAlias = tuple[Tensor, Tensor]
"""Weights of positive and of negative pairs: (B, R) float each."""

POSITIVE = 1
NEGATIVE = 0
IGNORE = -1


def pair_masks(
    labels: Tensor,
    ref_labels: Tensor | None = None,
    exclude_self: bool = True,
) -> tuple[Tensor, Tensor]:
    """Computes masks of the positive and the negative pairs of a batch.

    Args:
        labels: (B,) integer class ids of the anchors, or a (B, R)
            relation matrix: 1 positive, 0 negative, −1 (`IGNORE`) neither.
        ref_labels: (R,) class ids of the references. None compares the
            batch with itself.
        exclude_self: Whether the diagonal contains pairs of an example with
            itself, which are neither positive nor negative. This is the case
            when a batch is compared with itself. References (a queue, a
            gallery, a second view) are usually other images; if they contain
            the batch, pass a relation matrix with −1 for the anchor's own
            column.

    Returns:
        `(positive, negative)`: two boolean (B, R) masks.

    Class ids are compared as integers, because float32 would merge ids above
    2²⁴.
    """
    by_class = len(labels.shape) == 1
    if by_class:
        refs = labels if ref_labels is None else ref_labels
        positive = ops.equal(labels[:, None], refs[None, :])
        negative = ops.logical_not(positive)
    else:
        positive = ops.equal(labels, POSITIVE)
        negative = ops.equal(labels, NEGATIVE)
    if exclude_self:
        other = ops.logical_not(diagonal(labels))
        positive = ops.logical_and(positive, other)
        if not by_class:  # else an example is no negative of itself anyway
            negative = ops.logical_and(negative, other)
    return positive, negative


class Pairs(NamedTuple):
    """All pairs of a batch and its references.

    Attributes:
        distances: (B, R), oriented so that smaller is closer.
        positive: (B, R) boolean.
        negative: (B, R) boolean.
        metric: The distance function.
        embedding_dim: Dimensions of the embeddings, D.
        weights: (B, R) weights of the positive and of the negative pairs,
            without a gradient; None each without weights.
    """

    distances: Tensor
    positive: Tensor
    negative: Tensor
    metric: Distance
    embedding_dim: int
    weights: tuple[Tensor | None, Tensor | None] = (None, None)

    @property
    def rounding(self) -> Tensor:
        """Rounding error in the difference of two equal distances.

        A scalar without a gradient.
        """
        largest = ops.max(ops.abs(self.distances))
        return ops.stop_gradient(distances_lib.ROUNDING * largest)

    def counts(self) -> tuple[Tensor, Tensor]:
        """How much each pair counts, (B, R): the masks, or the weights."""
        masks = self.positive, self.negative
        if self.weights[0] is None:
            return masks
        positive, negative = (
            ops.where(mask, weight, 0.0)
            for mask, weight in zip(masks, self.weights, strict=True)
        )
        return positive, negative


def hinge(excess: Tensor, rounding: Tensor) -> Tensor:
    """max(excess, 0), but 0 within the rounding error; NaN stays.

    So pairs exactly on a margin count alike in every rotation of the
    embeddings.

    Args:
        excess: Differences of distances and a margin, of any shape.
        rounding: `Pairs.rounding`.
    """
    excess = ops.relu(excess)
    return ops.where(excess <= rounding, 0.0, excess)


class Batch(NamedTuple):
    """The arguments of a loss; see `MetricLoss.per_example`."""

    labels: Tensor
    embeddings: Tensor
    ref_labels: Tensor | None = None
    ref_embeddings: Tensor | None = None
    pair_weights: PairWeights | None = None
    mask: Tensor | None = None

    @property
    def references(self) -> Tensor:
        """The references, (R, D), or the batch itself if there are none."""
        is_own = self.ref_embeddings is None
        return self.embeddings if is_own else self.ref_embeddings

    @property
    def size(self) -> Shape:
        """(B, R)."""
        return self.embeddings.shape[0], self.references.shape[0]

    def compare(self, distance: DistanceLike) -> Pairs:
        """Compares all pairs; `distance` is as for `distances.get`."""
        return compare(*self[:4], distance, self.pair_weights, self.mask)


def compare(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    distance: DistanceLike = "euclidean",
    pair_weights: PairWeights | None = None,
    mask: Tensor | None = None,
) -> Pairs:
    """Compares all anchors with all references.

    The other arguments are as for `MetricLoss.per_example`.
    """
    metric = distances_lib.get(distance)
    weights: tuple[Tensor | None, Tensor | None] = (None, None)
    if pair_weights is not None:
        positive, negative = (
            ops.stop_gradient(ops.cast(ops.convert_to_tensor(w), "float32"))
            for w in pair_weights
        )
        weights = positive, negative
    masks = pair_masks(labels, ref_labels, ref_embeddings is None)
    if mask is not None:
        masks = ops.logical_and(masks[0], mask), ops.logical_and(masks[1], mask)
    return Pairs(
        metric.between(embeddings, ref_embeddings),
        *masks,
        metric,
        embeddings.shape[-1],
        weights,
    )


def in_both(positive: Tensor, negative: Tensor) -> Tensor:
    """(B,) boolean: which rows have an entry in both (B, R) masks."""
    return ops.logical_and(ops.any(positive, axis=1), ops.any(negative, axis=1))
