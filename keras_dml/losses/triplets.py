"""Sums over triplets: what losses that are a mean of their terms share."""

from collections.abc import Callable
from typing import NamedTuple

from keras import ops

from keras_dml.losses.mining.visits import State, value_at
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs
from keras_dml.losses.reductions import Terms, reduce_terms
from keras_dml.utils.gradients import with_gradient
from keras_dml.utils.types import Tensor


class TripletTerms(NamedTuple):
    """The terms of a positive with all references, (B, R) each."""

    value: Tensor
    pull: Tensor
    """Derivative by the distance of the positive."""
    push: Tensor
    """Derivative by the distance of the negative."""
    costs: Tensor
    """Which terms are not zero, for reductions that count those."""


def reduced_triplets(
    loss: PairLoss,
    pairs: Pairs,
    terms_of: Callable[[Tensor, Tensor], TripletTerms],
) -> Tensor:
    """The reduction of the terms of all triplets that are mined, (B,).

    Args:
        loss: What mines and reduces.
        pairs: The pairs of a batch.
        terms_of: From the distance of a positive, (B, 1), and those of all
            references, (B, R), to the terms; what it gives where a
            reference is no negative does not matter.
    """
    fixed = ops.stop_gradient(pairs.distances)
    of_positives, of_negatives = pairs.weights

    def add(state: State, positive: Tensor, negatives: Tensor) -> State:
        total, count, nonzero, slopes = state
        negatives = ops.cast(negatives, "bool")
        terms = terms_of(value_at(fixed, positive), fixed)
        value, pull, push = (
            ops.where(negatives, x, 0.0)
            for x in (terms.value, terms.pull, terms.push)
        )
        if of_positives is not None:
            weights = value_at(of_positives, positive) * of_negatives
            weights = ops.where(negatives, weights, 0.0)
            value, pull, push = (weights * x for x in (value, pull, push))
        to_positive = ops.sum(pull, axis=1, keepdims=True)
        return (
            total + ops.sum(value, axis=1),
            count + _count(negatives),
            nonzero + _count(ops.logical_and(negatives, terms.costs)),
            ops.where(positive, to_positive, slopes) + push,
        )

    zeros = ops.zeros_like(fixed[:, 0])
    initial = (zeros, zeros, zeros, ops.zeros_like(fixed))
    *sums, slopes = loss.for_each_positive(pairs, add, initial)
    terms = Terms(*sums)
    total = with_gradient(terms.total, slopes, pairs.distances)
    return reduce_terms(terms._replace(total=total), loss.reduction)


def _count(mask: Tensor) -> Tensor:
    return ops.sum(ops.cast(mask, "float32"), axis=1)
