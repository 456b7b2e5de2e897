"""Margin loss."""

from typing import Any

import keras
from keras import ops

from keras_dml.losses import distances
from keras_dml.losses.base import LOSSES
from keras_dml.losses.mining import Miner, Seed
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.mining.visits import State, value_at
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs, PairWeights, compare
from keras_dml.losses.reductions import Terms, reduce_terms, sum_terms
from keras_dml.losses.variables import (
    add_loss_variable,
    check_class_ids,
    check_not_built,
    nan_outside,
    not_built_error,
    take_rows,
)
from keras_dml.utils.arguments import check_choice, check_count
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Config, Tensor

NORMALIZATIONS = ("pairs", "triplets")


def margin(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    pair_weights: PairWeights | None = None,
    *,
    alpha: float = 0.2,
    beta: float | Tensor = 1.2,
    nu: float = 0.0,
    normalize_by: str = "pairs",
    distance: str = "euclidean",
    mining: Any = "distance_weighted",
    seed: Seed = None,
    reduction: str = "mean_nonzero",
) -> Tensor:
    """Margin loss of every example, (B,); see `MarginLoss`.

    `beta` may be a tensor that broadcasts to (B, 1): the β of each anchor.
    """
    pairs = compare(
        labels, embeddings, ref_labels, ref_embeddings, distance, pair_weights
    )
    miner = get_miner(mining)
    beta = ops.convert_to_tensor(beta, dtype="float32")
    boundary = pairs.metric.orient(beta)
    excess = ops.relu(alpha + pairs.distances - boundary)
    lack = ops.relu(alpha + boundary - pairs.distances)
    if normalize_by == "triplets":
        *counts, triplets, active = _count_triplets(
            miner, pairs, excess, lack, seed
        )
    else:
        counts = list(miner.pair_weights(pairs, seed))
    positive = sum_terms(excess, counts[0], pairs.weights[0])
    negative = sum_terms(lack, counts[1], pairs.weights[1])
    terms = Terms(
        *(left + right for left, right in zip(positive, negative, strict=True))
    )
    if normalize_by == "triplets":
        terms = Terms(terms.total, triplets, active)
    values = reduce_terms(terms, reduction)
    if nu == 0:
        return values
    anchors = ops.cast(terms.count > 0, "float32")
    return values + nu * anchors * ops.reshape(beta, (-1,))


def _count_triplets(
    miner: Miner, pairs: Pairs, excess: Tensor, lack: Tensor, seed: Seed
) -> State:
    """Counts of pairs, and (B,) numbers of triplets and active triplets."""
    positive_active = ops.cast(excess > 0, "float32")
    negative_active = lack > 0

    def add(state: State, visited: Tensor, negatives: Tensor) -> State:
        positive, negative, triplets, active = state
        negatives = ops.cast(negatives, "float32")
        count = ops.sum(negatives, axis=1, keepdims=True)
        either = ops.logical_or(
            negative_active, value_at(positive_active, visited) > 0
        )
        return (
            ops.where(visited, count, positive),
            negative + negatives,
            triplets + count[:, 0],
            active + ops.sum(ops.where(either, negatives, 0.0), axis=1),
        )

    pair_zeros = ops.zeros_like(pairs.distances)
    zeros = ops.zeros_like(pairs.distances[:, 0])
    initial = (pair_zeros, pair_zeros, zeros, zeros)
    return miner.for_each_positive(pairs, add, initial, seed)


@LOSSES.register(
    "margin", "pairs on their side of a boundary, which may be learned"
)
@register
class MarginLoss(PairLoss):
    """Margin loss with distance-weighted sampling (Wu et al., 2017).

    [α + d − β]₊ for positive and [α + β − d]₊ for negative pairs: a hinge
    of width α on either side of the boundary β, which may be learned.

    Mining yields triplets (a, p, n), one drawn negative for each positive
    by default; each counts as the pairs (a, p) and (a, n). Terms are
    pairs, or triplets with `normalize_by="triplets"`. The default,
    "mean_nonzero", divides by the number of active pairs. `pair_weights`
    multiply the hinges of pairs, also within triplets.

    Args:
        alpha: Half-width α of the hinge, in units of `distance`.
        beta: Boundary β, or its initial value if it is learned.
        learn_beta: Whether β is a weight. Such a loss must be built by a
            layer, as `keras_dml.MetricModel` does.
        num_classes: None for one β; a number for one β a class, that of
            the anchor. Needs `learn_beta`, and class ids in
            [0, num_classes): another id is an error, or NaN as the
            example's loss inside a compiled graph.
        nu: Weight ν of the penalty ν·β on a learned β (Eq. 7).
        normalize_by: What counts as a term: "pairs", or "triplets", where
            a triplet is active if either of its pairs is.
        distance: A name in `keras_dml.losses.distances.DISTANCES`.
        mining: As for `PairLoss`. With "all", and normalized by pairs,
            each pair counts once.
        reduction: As for `MetricLoss`.
        **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If an argument is out of range.
        RuntimeError: When called before `build`, if `learn_beta`.

    Requirements:
        At least two examples a class; several images a class make the
        draws worthwhile.

    Deviations:
        - The paper's per-image β is left out.

    Reference:
        Wu et al., "Sampling Matters in Deep Embedding Learning", ICCV 2017, Eq.
        6 and 7, https://arxiv.org/abs/1706.07567.
    """

    function = staticmethod(margin)

    def __init__(
        self,
        alpha: float = 0.2,
        beta: float = 1.2,
        learn_beta: bool = False,
        num_classes: int | None = None,
        nu: float = 0.0,
        normalize_by: str = "pairs",
        distance: str = "euclidean",
        mining: Any = "distance_weighted",
        reduction: str = "mean_nonzero",
        **kwargs: Any,
    ) -> None:
        super().__init__(mining, reduction=reduction, **kwargs)
        self.distance = distances.get(distance).name
        check_choice("MarginLoss", "normalize_by", normalize_by, NORMALIZATIONS)
        if num_classes is not None:
            check_count("MarginLoss", "num_classes", num_classes)
            if not learn_beta:
                raise ValueError(
                    "`num_classes` of MarginLoss gives every class a "
                    "learned boundary and needs `learn_beta`. Received: "
                    f"num_classes={num_classes}, learn_beta=False. Use "
                    "learn_beta=True."
                )
        self.alpha = alpha
        self.beta = beta
        self.learn_beta = learn_beta
        self.num_classes = num_classes
        self.nu = nu
        self.normalize_by = normalize_by
        self.beta_weight: keras.Variable | None = None

    @property
    def owns_variables(self) -> bool:
        return self.learn_beta

    def build(self, owner: keras.layers.Layer, embedding_dim: int) -> None:
        super().build(owner, embedding_dim)
        if self.learn_beta:
            check_not_built("MarginLoss", self.beta_weight is not None)
            self.beta_weight = add_loss_variable(
                owner,
                "beta",
                shape=(self.num_classes or 1,),
                initializer=keras.initializers.Constant(self.beta),
            )

    def arguments(self) -> Config:
        arguments = super().arguments()
        if self.learn_beta:
            if self.beta_weight is None:
                code = "MarginLoss(learn_beta=True)"
                raise not_built_error("MarginLoss", code)
            arguments["beta"] = ops.convert_to_tensor(self.beta_weight)
        return arguments

    def call(
        self,
        labels: Tensor,
        embeddings: Tensor,
        ref_labels: Tensor | None = None,
        ref_embeddings: Tensor | None = None,
        pair_weights: PairWeights | None = None,
    ) -> Tensor:
        arguments = self.arguments()
        args = labels, embeddings, ref_labels, ref_embeddings, pair_weights
        if self.num_classes is None:
            return margin(*args, **arguments)
        check_class_ids("MarginLoss", labels, self.num_classes)
        arguments["beta"] = take_rows(arguments["beta"], labels)[:, None]
        values = margin(*args, **arguments)
        return nan_outside(values, labels, self.num_classes)
