"""Distillation: one embedding learns how examples relate in another.

Relations of a batch do not depend on dimensions, so the two embeddings may
differ in theirs. No function passes a gradient to its targets.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from keras_dml.losses.distances import euclidean_distance, inner_product
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.types import Tensor


def similarity_divergence(
    embeddings: Tensor, targets: Tensor, temperature: float = 1.0
) -> Tensor:
    r"""Divergence of each row of cosine similarities from the target's.

    $$
    T^2 \, D_{KL}\left( \sigma(G_i / T) \,\middle\|\, \sigma(F_i / T) \right)
    $$

    with the softmax σ and the similarities F_i of example i to all examples of
    the batch, itself included, among the embeddings, and G_i among the targets.

    Args:
        embeddings: (B, D), what learns.
        targets: (B, D'), what it learns from.
        temperature: T.

    Returns:
        (B,) float32, 0 where the similarities agree.

    Deviations:
        - The direction of the divergence and the factor T² are those of the
          released code.

    Reference:
        Roth et al., "Simultaneous Similarity-based Self-Distillation for Deep
        Metric Learning", ICML 2021, https://arxiv.org/abs/2009.08348.
    """
    student = _log_softmax(_cosines(embeddings) / temperature)
    teacher = ops.stop_gradient(_log_softmax(_cosines(targets) / temperature))
    divergence = ops.sum(ops.exp(teacher) * (teacher - student), axis=1)
    return temperature**2 * divergence


def distance_difference(embeddings: Tensor, targets: Tensor) -> Tensor:
    r"""Distance-wise relational distillation, RKD-D.

    $$
    \frac{1}{B} \sum_j \ell_\delta\left(
    \frac{\| s_i - s_j \|}{\mu_s}, \frac{\| t_i - t_j \|}{\mu_t} \right)
    $$

    with the Huber loss of δ = 1, and the mean μ of the distances of different
    examples of the batch.

    Args:
        embeddings: s, (B, D), what learns.
        targets: t, (B, D'), what it learns from.

    Returns:
        (B,) float32.

    Deviations:
        - A mean over pairs, as in the released code, where the paper sums.
        - μ includes distances of zero, as in Eq. 6. The released code leaves
          them out, and so depends on rounding if an image is repeated.

    Reference:
        Park et al., "Relational Knowledge Distillation", CVPR 2019, Eq. 5 to
        8 (numbers not verified), https://arxiv.org/abs/1904.05068.
    """
    student = _relative(euclidean_distance(ops.cast(embeddings, "float32")))
    teacher = _relative(euclidean_distance(ops.cast(targets, "float32")))
    return ops.mean(_huber(student - ops.stop_gradient(teacher)), axis=1)


def angle_difference(embeddings: Tensor, targets: Tensor) -> Tensor:
    r"""Angle-wise relational distillation, RKD-A.

    $$
    \frac{1}{B^2} \sum_{i,k} \ell_\delta\left(
    \cos \angle s_i s_j s_k, \cos \angle t_i t_j t_k \right)
    $$

    for the example j at the vertex, with the Huber loss of δ = 1. An angle
    with a side of no length counts as a right one.

    It needs memory for B³ + B²D numbers of each of the two embeddings.

    Args:
        embeddings: s, (B, D), what learns.
        targets: t, (B, D'), what it learns from.

    Returns:
        (B,) float32, by vertices.

    Deviations:
        - A mean over triplets, as in the released code, where the paper sums.

    Reference:
        Park et al., "Relational Knowledge Distillation", CVPR 2019, Eq. 9
        and 10 (numbers not verified), https://arxiv.org/abs/1904.05068.
    """
    teacher = ops.stop_gradient(_angles(targets))
    return ops.mean(_huber(_angles(embeddings) - teacher), axis=(1, 2))


RELATIONS: dict[str, Callable[..., Any]] = {
    "similarity": similarity_divergence,
    "distance": distance_difference,
    "angle": angle_difference,
}
"""What a student can learn of its teacher, by name."""


def _cosines(x: Tensor) -> Tensor:
    return inner_product(l2_normalize(ops.cast(x, "float32")))


def _log_softmax(rows: Tensor) -> Tensor:
    # The one in Keras warns about a batch of one example.
    return rows - ops.logsumexp(rows, axis=1, keepdims=True)


def _relative(distances: Tensor) -> Tensor:
    """Distances divided by the mean of those of different examples."""
    rows = ops.cast(ops.shape(distances)[0], distances.dtype)
    pairs = rows * (rows - 1)
    return ops.divide_no_nan(distances * pairs, ops.sum(distances))


def _angles(x: Tensor) -> Tensor:
    """(B, B, B): at [j, i, k] the cosine of the angle at j, of i and k."""
    x = ops.cast(x, "float32")
    sides = l2_normalize(x[None, :] - x[:, None])  # (B, B, D)
    return ops.matmul(sides, ops.transpose(sides, (0, 2, 1)))


def _huber(difference: Tensor) -> Tensor:
    size = ops.abs(difference)
    return ops.where(size <= 1, 0.5 * ops.square(size), size - 0.5)
