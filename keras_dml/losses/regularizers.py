"""Regularizers of ensembles: terms on the parts of an image's embedding."""

import numpy as np
from keras import ops

from keras_dml.utils.arguments import check_choice
from keras_dml.utils.types import Tensor


def divergence(
    parts: Tensor, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    r"""Divergence loss of ABE: keeps the learners of an image apart (Eq. 9).

    $$
    \sum_{p < q} \left[ m - \| B_p(x) - B_q(x) \|^2 \right]_+
    $$

    Args:
        parts: (B, K, d) unit-length embeddings of K learners.
        margin: m, a squared distance.
        reduction: "mean" over the batch, with unordered pairs; or "sum", with
            ordered pairs, as in Eq. 9 without the 1/N of Eq. 10, which is 2B
            times the mean.

    Returns:
        (B,) float32, whose mean is the loss; 0 for a single learner.

    Raises:
        ValueError: If `reduction` is unknown.

    Deviations:
        - The default divides by the batch size, like the metric loss, and
          counts each pair once.

    Reference:
        Kim et al., "Attention-based Ensemble for Deep Metric Learning",
        ECCV 2018.
    """
    similarity, upper = _pairs_of_parts(parts)
    squared = 2.0 - 2.0 * similarity
    values = ops.sum(ops.relu(margin - squared) * upper, axis=(1, 2))
    check_choice("divergence", "reduction", reduction, ("mean", "sum"))
    if reduction == "mean":
        return values
    return values * 2.0 * ops.cast(ops.shape(parts)[0], "float32")


def diversity(
    parts: Tensor,
    alpha: float = 2.0,
    threshold: float = 0.5,
    scale: float = 25.0,
    reduction: str = "mean",
) -> Tensor:
    r"""Diversity loss of attentive grouping: makes groups differ (Eq. 4).

    $$
    \log\left( 1 + e^{\alpha \beta_0 (s - m)} \right)
    $$

    for each pair of groups of an image, with their cosine similarity s.

    Args:
        parts: (B, P, d) unit-length embeddings of P groups.
        alpha: α.
        threshold: m.
        scale: β₀. The default is that of the released code; Table 1 of the
            paper has 1.
        reduction: "mean" over the pairs i < j (Eq. 14), or "sum": their
            sum divided by P − 1, as in the released code.

    Returns:
        (B,) float32; 0 for a single group.

    Raises:
        ValueError: If `reduction` is unknown.

    Reference:
        Xu et al., "Towards Improved and Interpretable Deep Metric Learning
        via Attentive Grouping", 2020.
    """
    check_choice("diversity", "reduction", reduction, ("mean", "sum"))
    similarity, upper = _pairs_of_parts(parts)
    terms = ops.softplus(alpha * scale * (similarity - threshold))
    count = parts.shape[1]
    divisor = count * (count - 1) / 2 if reduction == "mean" else count - 1
    return ops.sum(terms * upper, axis=(1, 2)) / max(divisor, 1)


def self_reinforcement(weights: Tensor) -> Tensor:
    r"""Self-reinforcement of DCML's compositors (Eq. 7).

    $$
    -\sum_m \log \max_k |c_{mk}| .
    $$

    Each compositor strengthens its strongest weight.

    Args:
        weights: (B, M, K) weights c of M compositors over K learners.

    Returns:
        (B,) float32, the sum over compositors.

    Deviations:
        - The paper takes the maximum of the signed weights, whose logarithm is
          undefined if it is negative; |c| is the softmax score.

    Reference:
        Zheng et al., "Deep Compositional Metric Learning", CVPR 2021.
    """
    strongest = ops.max(ops.abs(ops.cast(weights, "float32")), axis=2)
    return -ops.sum(ops.log(strongest), axis=1)


def correlation(a: Tensor, b: Tensor, reduction: str = "mean") -> Tensor:
    r"""Correlation of two embeddings of the same images (DiVA, Eq. 7).

    $$
    c = \sum_i a_i^2 b_i^2
    $$

    DiVA subtracts ρ·c from the loss, with a = R(φ_a) and b = ψ(R(φ_b)), where R
    is a gradient reversal and ψ a small network: ψ learns to raise c, and the
    embeddings learn to lower it.

    Args:
        a: (B, D) unit-length embeddings.
        b: (B, D) unit-length embeddings.
        reduction: "sum" over dimensions, as in Eq. 7, or "mean", as in the
            released code, to which the published values of ρ refer.

    Returns:
        (B,) float32.

    Raises:
        ValueError: If `reduction` is unknown.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020.
    """
    check_choice("correlation", "reduction", reduction, ("mean", "sum"))
    squared = ops.square(ops.cast(a, "float32") * ops.cast(b, "float32"))
    reduce = ops.mean if reduction == "mean" else ops.sum
    return reduce(squared, axis=1)


def _pairs_of_parts(parts: Tensor) -> tuple[Tensor, Tensor]:
    """(B, K, K) inner products, and the (K, K) mask of the pairs i < j."""
    parts = ops.cast(parts, "float32")
    similarity = ops.einsum("bid,bjd->bij", parts, parts)
    count = parts.shape[1]
    upper = np.triu(np.ones((count, count), "float32"), k=1)
    return similarity, ops.convert_to_tensor(upper)
