"""Distances between all rows of two batches, from one matrix product.

Also known as:
    - pytorch-metric-learning: `distances`, the argument `distance` of a loss.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from keras import ops

from keras_dml.utils.gradients import custom_gradient, l2_normalize
from keras_dml.utils.registry import Entry, Registry
from keras_dml.utils.types import Config, Tensor

DISTANCES: Registry[Callable[..., Tensor]] = Registry("distance")
"""Every distance by its name: a function of (B, D) and optional (R, D), to
(B, R) in its own units. Details that it may declare:

- `larger_is_closer`: True for a similarity.
- `unit_euclidean`: Euclidean distances of unit rows from its own values,
  negated for a similarity. Mining by distance asks for them.
"""


def safe_sqrt(x: Tensor) -> Tensor:
    """√x; 0 with gradient 0, and not infinity, where x is 0 or less."""
    is_zero = x <= 0
    return ops.where(is_zero, 0.0, ops.sqrt(ops.where(is_zero, 1.0, x)))


def _from_cosine(oriented: Tensor) -> Tensor:
    return safe_sqrt(2.0 + 2.0 * oriented)


@DISTANCES.register(
    "dot", "inner product", larger_is_closer=True, unit_euclidean=_from_cosine
)
def inner_product(x: Tensor, refs: Tensor | None = None) -> Tensor:
    r"""Inner products x · r of all rows of `x` and of `refs`, or `x`: (B, R).

    $$
    s(x, r) = \sum_i x_i r_i
    $$

    Also known as:
        - pytorch-metric-learning: `DotProductSimilarity()`.
        - TF Similarity: `"inner_product"`.
    """
    return ops.matmul(x, ops.transpose(x if refs is None else refs))


@DISTANCES.register(
    "cosine",
    "cosine similarity",
    larger_is_closer=True,
    unit_euclidean=_from_cosine,
)
def cosine_similarity(x: Tensor, refs: Tensor | None = None) -> Tensor:
    r"""Cosine similarities of all rows: (B, R), in [−1, 1].

    $$
    s(x, r) = \frac{x^\top r}{\|x\| \, \|r\|}
    $$

    Also known as:
        - pytorch-metric-learning: `CosineSimilarity()`.
        - TF Similarity: `"cosine"` is the distance 1 − s.
    """
    refs = None if refs is None else l2_normalize(refs)
    return inner_product(l2_normalize(x), refs)


@DISTANCES.register(
    "squared", "squared Euclidean distance", unit_euclidean=safe_sqrt
)
def squared_distance(x: Tensor, refs: Tensor | None = None) -> Tensor:
    r"""Squared distances ‖x − r‖² of all rows: (B, R); exactly 0 for x itself.

    $$
    d(x, r) = \sum_i (x_i - r_i)^2
    $$

    Also known as:
        - pytorch-metric-learning: `LpDistance(power=2)`.
        - TF Similarity: `"squared_euclidean"`.
        - TensorFlow Addons: `"squared-L2"`.
    """

    def gradient(upstream: Tensor, value: Tensor) -> Tensor:
        return upstream

    return _of_differences(lambda squared: squared, gradient, x, refs)


@DISTANCES.register(
    "euclidean", "Euclidean distance", unit_euclidean=lambda value: value
)
def euclidean_distance(x: Tensor, refs: Tensor | None = None) -> Tensor:
    r"""Euclidean distances ‖x − r‖ of all rows: (B, R), with gradient 0 at 0.

    $$
    d(x, r) = \sqrt{\sum_i (x_i - r_i)^2}
    $$

    Also known as:
        - pytorch-metric-learning: `LpDistance()`.
        - TF Similarity: `"euclidean"`.
        - TensorFlow Addons: `"L2"`.
    """

    def gradient(upstream: Tensor, value: Tensor) -> Tensor:
        return ops.divide_no_nan(0.5 * upstream, value)

    return _of_differences(ops.sqrt, gradient, x, refs)


@DISTANCES.register("snr", "variance of x − r over that of x (SNR distance)")
def snr_distance(x: Tensor, refs: Tensor | None = None) -> Tensor:
    r"""Noise-to-signal ratios Var(x − r)/Var(x) of all rows: (B, R).

    $$
    d(x, r) = \frac{\operatorname{Var}_i(x_i - r_i)}{\operatorname{Var}_i(x_i)}
    $$

    r is regarded as a noisy copy of x; variances are over dimensions. Not
    symmetric; 0 for a row without variance.

    Also known as:
        - pytorch-metric-learning: `SNRDistance()`.
        - TF Similarity: `"snr"`.

    Reference:
        Yuan et al., "Signal-to-Noise Ratio: A Robust Distance Metric for Deep
        Similarity Learning", CVPR 2019, Eq. 6,
        https://arxiv.org/abs/1904.02616.
    """
    signal = _center(x)
    noise = squared_distance(signal, None if refs is None else _center(refs))
    power = ops.sum(ops.square(signal), axis=1, keepdims=True)
    return ops.where(power > 0, noise / ops.where(power > 0, power, 1.0), 0.0)


def _center(x: Tensor) -> Tensor:
    return x - ops.mean(x, axis=1, keepdims=True)


def _of_differences(
    function: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    refs: Tensor | None,
) -> Tensor:
    """f(‖x − r‖²) for all rows: (B, R).

    The gradient, Σ_r 2 f'(‖x − r‖²)(x − r), is written out: automatic
    differentiation passes every (B, R) matrix on the way, and that is where
    the time of most losses would go.

    `slope(upstream, f)` is upstream · f', elementwise.
    """

    @custom_gradient
    def among(x: Tensor) -> Any:
        squared = ops.where(diagonal(x), 0.0, _squared_differences(x, x))
        value = function(squared)

        def gradient(upstream: Tensor) -> Tensor:
            by_squared = slope(upstream, value)
            return _pull(by_squared + ops.transpose(by_squared), x, x)

        return value, gradient

    @custom_gradient
    def across(x: Tensor, refs: Tensor) -> Any:
        value = function(_squared_differences(x, refs))

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            by_squared = slope(upstream, value)
            return (
                _pull(by_squared, x, refs),
                _pull(ops.transpose(by_squared), refs, x),
            )

        return value, gradient

    return among(x) if refs is None else across(x, refs)


ROUNDING = 32 * 2.0**-23
"""Rounding error of a sum of products that should be 0, relative to the sizes
of the sums: up to 18 units of float32 were found with 2,048 numbers."""


def _squared_differences(x: Tensor, refs: Tensor) -> Tensor:
    sizes = (
        ops.sum(ops.square(x), axis=1)[:, None]
        + ops.sum(ops.square(refs), axis=1)[None, :]
    )
    squared = inner_product(-2.0 * x, refs) + sizes
    # Rounding leaves a small number, of either sign, for equal rows.
    return ops.where(squared <= ROUNDING * sizes, 0.0, squared)


def _pull(weights: Tensor, x: Tensor, refs: Tensor) -> Tensor:
    """2 Σ_r w (x − r): (B, D)."""
    total = ops.sum(weights, axis=1, keepdims=True)
    return 2.0 * (total * x - ops.matmul(weights, refs))


def diagonal(x: Tensor) -> Tensor:
    """Boolean (B, B) mask of the pairs of a row of `x` with itself."""
    rows = ops.arange(ops.shape(x)[0])
    return rows[:, None] == rows[None, :]


DistanceLike: TypeAlias = str | Config | Callable[..., Tensor]
"""A distance, as `distances.get` takes it."""


@dataclass(frozen=True)
class Distance:
    """A distance or similarity of embeddings, with its orientation.

    Attributes:
        name: Its name in messages.
        larger_is_closer: Whether it is a similarity.
        pairwise: (B, D), optional (R, D) → (B, R) in its own units.
        to_euclidean: A function that computes Euclidean distances of unit rows
            from the result of `between`; None if this is not possible.
    """

    name: str
    larger_is_closer: bool
    pairwise: Callable[..., Tensor]
    to_euclidean: Callable[[Tensor], Tensor] | None = None

    def orient(self, values: Tensor) -> Tensor:
        """Values (or a threshold) negated if need be: smaller is closer."""
        return -values if self.larger_is_closer else values

    def between(self, x: Tensor, refs: Tensor | None = None) -> Tensor:
        """(B, R) oriented distances: smaller is closer."""
        return self.orient(self.pairwise(x, refs))

    def unit_euclidean(self, oriented: Tensor) -> Tensor:
        """Euclidean distances of unit rows, from what `between` returns."""
        if self.to_euclidean is None:
            raise ValueError(
                f"The distance {self.name!r} must define how to compute "
                "Euclidean distances from it, because distance-weighted mining "
                "needs them. Register it with `unit_euclidean=`, or use "
                "another mining strategy."
            )
        return self.to_euclidean(oriented)


def get(identifier: DistanceLike) -> Distance:
    """Returns the distance described by an identifier.

    Args:
        identifier: A name in `DISTANCES`; a dict with a name and the arguments
            of the class registered under it; or a function or callable object
            `(x, refs)` → (B, R), which may have the details of `DISTANCES` as
            attributes.

    Raises:
        ValueError: If it is none of these.
    """
    if callable(identifier) and not isinstance(identifier, type):
        entry = _entry_of(identifier)
        if entry is None:
            name = getattr(identifier, "__name__", type(identifier).__name__)
            return _make_distance(name, identifier, _details_of(identifier))
        return _make_distance(entry.name, identifier, entry.details)
    arguments = dict(identifier) if isinstance(identifier, dict) else {}
    name = arguments.pop("name", None) if arguments else identifier
    if not isinstance(name, str):
        raise ValueError(
            "`distance` must be a name, a dict with its name and arguments, "
            f"or a function. Received: distance={identifier!r}. Use one of "
            f"{tuple(DISTANCES)}."
        )
    entry = DISTANCES[name]
    pairwise: Any = entry.value
    if isinstance(pairwise, type):
        pairwise = pairwise(**arguments)
    elif arguments:
        raise ValueError(
            f"The distance {entry.name!r} is a function and takes no "
            f"arguments. Received: {arguments}."
        )
    return _make_distance(
        entry.name, pairwise, {**_details_of(pairwise), **entry.details}
    )


def name_if_known(identifier: DistanceLike) -> Any:
    """The name of a distance in `DISTANCES`, or the object if it has none."""
    distance = get(identifier)
    is_object = callable(identifier) and _entry_of(identifier) is None
    has_no_name = is_object or isinstance(identifier, dict)
    return identifier if has_no_name else distance.name


def _entry_of(function: Any) -> Entry[Callable[..., Tensor]] | None:
    entries = DISTANCES.values()
    return next((entry for entry in entries if entry.value is function), None)


def _details_of(value: Any) -> Mapping[str, Any]:
    names = ("larger_is_closer", "unit_euclidean")
    return {x: getattr(value, x) for x in names if hasattr(value, x)}


def _make_distance(
    name: str, pairwise: Callable[..., Tensor], details: Mapping[str, Any]
) -> Distance:
    return Distance(
        name,
        details.get("larger_is_closer", False),
        pairwise,
        details.get("unit_euclidean"),
    )


def log_inverse_density(distance: Tensor, dim: int) -> Tensor:
    """Computes log 1/q(d), with q the density of distances on the unit sphere.

    log q(d) = (n − 2) log d + (n − 3)/2 · log(1 − d²/4), without its
    constant (Wu et al., "Sampling Matters in Deep Embedding Learning",
    ICCV 2017, Eq. 3).

    Args:
        distance: Euclidean distances of unit vectors, in (0, 2].
        dim: Dimensions of the embedding, n.

    Returns:
        A tensor of the shape of `distance`. At d = 2, where 1/q is infinite,
        the value is a large finite number.
    """
    tiny = math.ldexp(1.0, -40)
    rest = ops.maximum(1.0 - 0.25 * ops.square(distance), tiny)
    return (2.0 - dim) * ops.log(distance) + 0.5 * (3.0 - dim) * ops.log(rest)
