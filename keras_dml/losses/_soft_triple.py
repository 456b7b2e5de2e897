"""SoftTriple loss."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import inner_product, l2_normalize, safe_sqrt
from keras_dml.losses.gradients import custom_gradient
from keras_dml.losses.proxy_loss import ProxyLoss, class_mask, cross_entropy
from keras_dml.losses.reductions import reduce_terms, sum_terms
from keras_dml.utils.arguments import check_count, check_positive
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


def soft_triple(
    labels: Tensor,
    embeddings: Tensor,
    proxies: Tensor,
    *,
    num_centers: int = 10,
    scale: float = 20.0,
    gamma: float = 0.1,
    margin: float = 0.01,
    tau: float = 0.2,
    reduction: str = "mean",
) -> Tensor:
    """SoftTriple loss of every example, (B,); see `SoftTripleLoss`."""
    classes = proxies.shape[0] // num_centers
    proxies = l2_normalize(proxies)
    grouped = ops.reshape(proxies, (classes, num_centers, -1))  # (C, K, D)
    # Reducing the middle axis is faster than the short last one.
    columns = ops.reshape(ops.transpose(grouped, (1, 0, 2)), proxies.shape)
    similarity = ops.reshape(
        inner_product(embeddings, columns), (-1, num_centers, classes)
    )  # (B, K, C)
    to_class = _to_class(similarity, gamma)
    own = class_mask(labels, classes)
    logits = scale * (to_class - margin * ops.cast(own, "float32"))
    terms = cross_entropy(logits, own)
    values = reduce_terms(sum_terms(terms, ops.ones_like(terms)), reduction)
    if tau == 0 or num_centers == 1:
        return values
    return values + tau * _spread(grouped)


def _to_class(similarity: Tensor, gamma: float) -> Tensor:
    """(B, C) similarities of classes: centers weighted by their softmax."""

    @custom_gradient
    def to_class(similarity: Tensor) -> Any:
        top = ops.max(similarity, axis=1, keepdims=True)
        powers = ops.exp((similarity - top) * (1.0 / gamma))
        total = ops.sum(powers, axis=1, keepdims=True)
        value = ops.sum(powers * similarity, axis=1, keepdims=True) / total

        def gradient(upstream: Tensor) -> Tensor:
            by_power = upstream[:, None] / total
            return powers * (
                by_power * (1.0 - value * (1.0 / gamma))
                + (by_power * (1.0 / gamma)) * similarity
            )

        return ops.squeeze(value, axis=1), gradient

    return to_class(similarity)


def _spread(centers: Tensor) -> Tensor:
    """Mean over classes of Σ_{t<s} ‖w_t − w_s‖ / (K(K − 1)) (Eq. 10)."""
    similarity = ops.einsum("ckd,cld->ckl", centers, centers)
    squared = 2.0 - 2.0 * similarity
    distance = safe_sqrt(ops.where(squared < 0, 0.0, squared))
    count = centers.shape[1]
    upper = ops.triu(ops.ones((count, count), dtype="float32"), k=1)
    pairs = count * (count - 1) * centers.shape[0]
    return ops.sum(distance * upper[None]) / pairs


@LOSSES.register(
    "soft_triple", "softmax over classes that have several centers each"
)
@register
class SoftTripleLoss(ProxyLoss):
    """SoftTriple: softmax over classes that have several centers each.

    Cross entropy of λ(S_c − δ·1[c = y]) over the classes, S_c the
    similarity to the K centers of class c, weighted by their softmax with
    temperature γ; plus τ times the mean distance of a class's centers,
    which merges centers that are not needed.

    Terms are examples.

    Args:
        num_classes: As for `ProxyLoss`.
        num_centers: Centers a class, K.
        scale: λ.
        gamma: Temperature γ of the softmax over centers.
        margin: δ, a cosine similarity.
        tau: Weight τ of the distance between centers.
        reduction: As for `MetricLoss`; does not concern the τ term.
        **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        Qian et al., "SoftTriple Loss: Deep Metric Learning Without Triplet
        Sampling", ICCV 2019, Eq. 9 and 11, https://arxiv.org/abs/1909.05235.
    """

    function = staticmethod(soft_triple)

    def __init__(
        self,
        num_classes: int,
        num_centers: int = 10,
        scale: float = 20.0,
        gamma: float = 0.1,
        margin: float = 0.01,
        tau: float = 0.2,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        check_count("SoftTripleLoss", "num_centers", num_centers)
        check_positive("SoftTripleLoss", "scale", scale)
        check_positive("SoftTripleLoss", "gamma", gamma)
        self.num_centers = num_centers
        self.scale = scale
        self.gamma = gamma
        self.margin = margin
        self.tau = tau

    @property
    def num_proxies(self) -> int:
        return self.num_classes * self.num_centers
