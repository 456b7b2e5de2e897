"""Distances between all rows of two batches, from one matrix product."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from keras import ops

from keras_dml.arguments import check_choice
from keras_dml.types import Tensor


def l2_normalize(x: Tensor) -> Tensor:
    """Rows of unit length; a zero row stays zero, with a finite gradient."""
    squared = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return x / ops.sqrt(ops.where(squared == 0, 1.0, squared))


def inner_product(x: Tensor, refs: Tensor | None = None) -> Tensor:
    """x · r for all rows x of `x` and r of `refs` (`x` if None): (B, R)."""
    return ops.matmul(x, ops.transpose(x if refs is None else refs))


def cosine_similarity(x: Tensor, refs: Tensor | None = None) -> Tensor:
    """Cosine of the angle between all rows: (B, R), in [−1, 1]."""
    refs = None if refs is None else l2_normalize(refs)
    return inner_product(l2_normalize(x), refs)


def squared_distance(x: Tensor, refs: Tensor | None = None) -> Tensor:
    """‖x − r‖² for all rows: (B, R). Exactly 0 on the diagonal of (x, x)."""
    others = x if refs is None else refs
    squared = (
        ops.sum(ops.square(x), axis=1)[:, None]
        + ops.sum(ops.square(others), axis=1)[None, :]
        - 2.0 * inner_product(x, refs)
    )
    # Rounding makes tiny distances negative. `where` and not `maximum`,
    # which would turn NaN into 0 on some backends.
    squared = ops.where(squared < 0, 0.0, squared)
    if refs is None:
        squared = ops.where(diagonal(x), 0.0, squared)
    return squared


def euclidean_distance(x: Tensor, refs: Tensor | None = None) -> Tensor:
    """‖x − r‖ for all rows: (B, R). The gradient at distance 0 is 0."""
    return safe_sqrt(squared_distance(x, refs))


def safe_sqrt(x: Tensor) -> Tensor:
    """√x with gradient 0, and not infinity, at x = 0."""
    is_zero = x == 0
    return ops.where(is_zero, 0.0, ops.sqrt(ops.where(is_zero, 1.0, x)))


def diagonal(x: Tensor) -> Tensor:
    """Boolean (B, B) mask of the pairs of a row of `x` with itself."""
    rows = ops.arange(ops.shape(x)[0])
    return rows[:, None] == rows[None, :]


@dataclass(frozen=True)
class Distance:
    """A way to compare embeddings that knows which side is close.

    Attributes:
        name: The name under which `get` finds it.
        larger_is_closer: Whether this is a similarity.
        pairwise: (B, D), optional (R, D) → (B, R) in its own units.
    """

    name: str
    larger_is_closer: bool
    pairwise: Callable[..., Tensor]

    def orient(self, values: Tensor) -> Tensor:
        """Values (or a threshold) negated if need be: smaller is closer."""
        return -values if self.larger_is_closer else values

    def between(self, x: Tensor, refs: Tensor | None = None) -> Tensor:
        """(B, R) oriented distances: smaller is closer."""
        return self.orient(self.pairwise(x, refs))

    def unit_euclidean(self, oriented: Tensor) -> Tensor:
        """Euclidean distances of unit rows, from what `between` returns."""
        if self.name == "euclidean":
            return oriented
        if self.name == "squared":
            return safe_sqrt(oriented)
        squared = 2.0 + 2.0 * oriented
        return safe_sqrt(ops.where(squared < 0, 0.0, squared))


DISTANCES = {
    distance.name: distance
    for distance in (
        Distance("euclidean", False, euclidean_distance),
        Distance("squared", False, squared_distance),
        Distance("cosine", True, cosine_similarity),
        Distance("dot", True, inner_product),
    )
}
"""Every distance by its name."""


def get(name: str) -> Distance:
    """The distance of that name.

    Args:
        name: "euclidean", "squared" (Euclidean), "cosine" (similarity) or
            "dot" (inner product).

    Raises:
        ValueError: If there is none of that name.
    """
    check_choice("a metric loss", "distance", name, DISTANCES)
    return DISTANCES[name]


def log_inverse_density(distance: Tensor, dim: int) -> Tensor:
    """log 1/q(d), q the density of distances on the unit sphere.

    log q(d) = (n − 2) log d + (n − 3)/2 · log(1 − d²/4), without its
    constant (Wu et al., "Sampling Matters in Deep Embedding Learning",
    ICCV 2017, Eq. 3).

    Args:
        distance: Euclidean distances of unit vectors, in (0, 2].
        dim: Dimensions of the embedding, n.

    Returns:
        A tensor of the shape of `distance`. At d = 2, where 1/q is
        infinite, a large finite number.
    """
    tiny = math.ldexp(1.0, -40)
    rest = ops.maximum(1.0 - 0.25 * ops.square(distance), tiny)
    return (2.0 - dim) * ops.log(distance) + 0.5 * (3.0 - dim) * ops.log(rest)
