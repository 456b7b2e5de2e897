"""Reductions by name, and sums under a mask."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import keras
from keras import ops

from keras_dml.utils.arguments import check_choice
from keras_dml.utils.registry import Registry
from keras_dml.utils.types import Tensor


class Terms(NamedTuple):
    """The terms of a loss, summed up and counted for every example.

    Attributes:
        total: (B,) sum of an example's terms.
        count: (B,) number of its terms.
        nonzero: (B,) number of its terms above 0.
    """

    total: Tensor
    count: Tensor
    nonzero: Tensor


def sum_terms(
    terms: Tensor, counts: Tensor, weights: Tensor | None = None
) -> Terms:
    """Sums and counts the terms of every example.

    Args:
        terms: (B,) or (B, T).
        counts: Same shape, boolean or float: how often each term counts, 0 for
            missing terms.
        weights: Same shape: weights of the terms, which do not affect the
            counts. None: no weights.
    """
    exists = ops.cast(counts, "bool")
    terms = ops.where(exists, terms, 0.0)
    nonzero = ops.cast(terms > 0, "float32")
    if keras.backend.standardize_dtype(counts.dtype) != "bool":
        terms, nonzero = counts * terms, counts * nonzero
    if weights is not None:
        terms = ops.where(exists, weights, 0.0) * terms
    parts = (terms, ops.cast(counts, "float32"), nonzero)
    if len(terms.shape) == 2:
        return Terms(*(ops.sum(part, axis=1) for part in parts))
    return Terms(*parts)


ReductionLike: TypeAlias = str | Callable[[Terms], Tensor]
"""A name in `REDUCTIONS`, or a function like those there."""

REDUCTIONS: Registry[Callable[[Terms], Tensor]] = Registry("reduction")
"""How the terms of a loss become one number: functions of `Terms` that return
(B,) values whose mean over the batch is the reduced loss.

The docstring of each loss says what its terms are (pairs, triplets, anchors).
"""


@REDUCTIONS.register("mean", "their sum divided by their number")
def mean(terms: Terms) -> Tensor:
    """The mean of all terms; 0 if there are no terms."""
    return scale_to_mean(terms.total, ops.sum(terms.count))


@REDUCTIONS.register(
    "mean_nonzero", "their sum divided by the number of those above 0"
)
def mean_nonzero(terms: Terms) -> Tensor:
    """The mean of the terms above 0; 0 if there are none."""
    return scale_to_mean(terms.total, ops.sum(terms.nonzero))


@REDUCTIONS.register(
    "sum_over_pairs", "their sum divided by the number of examples, B"
)
def sum_over_pairs(terms: Terms) -> Tensor:
    """The sum of the terms of each example."""
    return terms.total


def check_reduction(owner: str, reduction: ReductionLike) -> ReductionLike:
    """`reduction`, as a name if it has one; `ValueError` if it is neither."""
    if callable(reduction):
        entries = REDUCTIONS.values()
        names = (entry.name for entry in entries if entry.value is reduction)
        return next(names, reduction)
    if isinstance(reduction, str) and ":" in reduction:
        return REDUCTIONS[reduction].name
    return check_choice(owner, "reduction", reduction, REDUCTIONS)


def reduce_terms(terms: Terms, reduction: ReductionLike) -> Tensor:
    """Reduces terms to (B,) values, whose mean over the batch is the loss.

    Args:
        terms: The terms of a loss.
        reduction: A name in `REDUCTIONS`, or a function like those registered
            there.

    Returns:
        (B,) float32.
    """
    if callable(reduction):
        return reduction(terms)
    return REDUCTIONS[reduction].value(terms)


def scale_to_mean(total: Tensor, count: Tensor) -> Tensor:
    """(B,) values whose mean is Σ `total` / `count`; 0 if `count` is 0."""
    batch = ops.cast(ops.shape(total)[0], "float32")
    return total * (batch / ops.where(count > 0, count, 1.0))


def masked_logsumexp(
    x: Tensor,
    mask: Tensor,
    axis: int = 1,
    add_one: bool = False,
    weights: Tensor | None = None,
) -> Tensor:
    """log Σ exp(x) over the `mask`ed entries of an axis, kept as size 1.

    Args:
        x: Any floating tensor.
        mask: Boolean, same shape.
        axis: The axis to sum over.
        add_one: Whether to compute log(1 + Σ exp(x)).
        weights: Same shape, 0 or more: what multiplies each exponential.
            None: nothing.

    Returns:
        Where the mask is empty: 0 if `add_one`, else −1e30, which as an
        exponent counts for nothing and has no gradient.
    """
    low = -1e30
    if weights is not None:
        x, mask = weighted_exponents(x, mask, weights)
    x = ops.where(mask, x, low)
    top = ops.stop_gradient(ops.max(x, axis=axis, keepdims=True))
    empty = top == low
    # What is masked becomes exp(−1e30) = 0, also where everything is.
    shift = ops.maximum(top, 0.0) if add_one else ops.where(empty, 0.0, top)
    total = ops.sum(ops.exp(x - shift), axis=axis, keepdims=True)
    if add_one:
        # = log(total + exp(−shift)), which would lose a small total.
        return shift + ops.log1p(total + ops.expm1(-shift))
    return ops.where(empty, low, shift + ops.log(ops.where(empty, 1.0, total)))


def weighted_exponents(
    x: Tensor, mask: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """The exponents, and where there is one, of w · exp(x)."""
    mask = ops.logical_and(mask, weights != 0)
    return x + ops.log(ops.where(mask, weights, 1.0)), mask
