"""Proxy-Anchor loss."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import inner_product, l2_normalize
from keras_dml.losses.proxy_loss import ProxyLoss, class_mask
from keras_dml.losses.reductions import masked_logsumexp
from keras_dml.utils.arguments import check_choice, check_positive
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


def proxy_anchor(
    labels: Tensor,
    embeddings: Tensor,
    proxies: Tensor,
    *,
    alpha: float = 32.0,
    margin: float = 0.1,
) -> Tensor:
    """Proxy-Anchor loss, an example's share, (B,); see `ProxyAnchorLoss`."""
    similarity = inner_product(embeddings, l2_normalize(proxies))  # (B, C)
    own = class_mask(labels, proxies.shape[0])
    present = ops.cast(ops.any(own, axis=0), "float32")
    pull = _shares(alpha * (margin - similarity), own)
    push = _shares(alpha * (margin + similarity), ops.logical_not(own))
    batch = ops.cast(ops.shape(similarity)[0], "float32")
    num_present = ops.maximum(ops.sum(present), 1.0)
    return batch * (
        ops.sum(pull, axis=1) / num_present
        + ops.sum(push, axis=1) / proxies.shape[0]
    )


def _shares(exponents: Tensor, mask: Tensor) -> Tensor:
    """(B, C): each proxy's log(1 + Σ exp), shared by its examples."""
    terms = masked_logsumexp(exponents, mask, axis=0, add_one=True)  # (1, C)
    weights = ops.cast(mask, "float32")
    count = ops.sum(weights, axis=0, keepdims=True)
    return terms * weights / ops.where(count > 0, count, 1.0)


@LOSSES.register(
    "proxy_anchor", "every class proxy is an anchor for the whole batch"
)
@register
class ProxyAnchorLoss(ProxyLoss):
    """Proxy-Anchor: every proxy is an anchor for the whole batch.

    1/|P₊| Σ_{p ∈ P₊} log(1 + Σ_{x ∈ X₊} exp(−α(s(x, p) − δ))) +
    1/|P| Σ_p log(1 + Σ_{x ∈ X₋} exp(α(s(x, p) + δ))), P₊ the proxies whose
    class is in the batch, X₊ and X₋ the examples of p's class and of
    others, s cosine similarity.

    The loss belongs to proxies, not examples: each proxy's two terms are
    shared equally by the examples in them, and the mean of the shares is
    the loss.

    Args:
        num_classes: As for `ProxyLoss`.
        alpha: Scale α.
        margin: δ, a cosine similarity.
        reduction: "mean", the only one.
        **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `alpha` is not positive, or for another reduction.

    Reference:
        Kim et al., "Proxy Anchor Loss for Deep Metric Learning", CVPR 2020, Eq.
        4, https://arxiv.org/abs/2003.13911.
    """

    function = staticmethod(proxy_anchor)

    def __init__(
        self,
        num_classes: int,
        alpha: float = 32.0,
        margin: float = 0.1,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        check_choice("ProxyAnchorLoss", "reduction", reduction, ("mean",))
        check_positive("ProxyAnchorLoss", "alpha", alpha)
        self.alpha = alpha
        self.margin = margin
