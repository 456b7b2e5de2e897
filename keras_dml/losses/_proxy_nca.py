"""Proxy-NCA."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import inner_product, l2_normalize
from keras_dml.losses.proxy_loss import ProxyLoss, class_mask, cross_entropy
from keras_dml.losses.reductions import (
    masked_logsumexp,
    reduce_terms,
    sum_terms,
)
from keras_dml.utils.arguments import check_positive
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


def proxy_nca(
    labels: Tensor,
    embeddings: Tensor,
    proxies: Tensor,
    *,
    temperature: float = 1.0,
    exclude_positive: bool = True,
    reduction: str = "mean",
) -> Tensor:
    """Proxy-NCA loss of every example, (B,); see `ProxyNCALoss`."""
    proxies = l2_normalize(proxies)
    # −‖x − p‖² but for ‖x‖², which every class has and softmax cancels.
    logits = inner_product((2.0 / temperature) * embeddings, proxies)
    logits -= (1.0 / temperature) * ops.sum(ops.square(proxies), axis=1)
    own = class_mask(labels, proxies.shape[0])
    if exclude_positive:
        own_logit = ops.sum(ops.where(own, logits, 0.0), axis=1)
        log_total = masked_logsumexp(logits, ops.logical_not(own))
        terms = log_total[:, 0] - own_logit
    else:
        terms = cross_entropy(logits, own)
    return reduce_terms(sum_terms(terms, ops.ones_like(terms)), reduction)


@LOSSES.register(
    "proxy_nca", "neighborhood component analysis against class proxies"
)
@register
class ProxyNCALoss(ProxyLoss):
    """Proxy-NCA: neighborhood component analysis against class proxies.

    −log(exp(−d(x, p_y)/T) / Σ_z exp(−d(x, p_z)/T)), d the squared distance
    of unit vectors. As published, z runs over the *other* classes, and the
    loss can be negative; Proxy-NCA++ sums over all of them, with a low
    temperature: `exclude_positive=False, temperature=1/9`.

    Terms are examples.

    Args:
        num_classes: As for `ProxyLoss`.
        temperature: T.
        exclude_positive: Whether the example's own proxy is left out of
            the denominator.
        reduction: As for `MetricLoss`.
        **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Reference:
        Movshovitz-Attias et al., "No Fuss Distance Metric Learning using
        Proxies", ICCV 2017, Eq. 4, https://arxiv.org/abs/1703.07464; Teh et
        al., "ProxyNCA++", ECCV 2020, Eq. 7.
    """

    function = staticmethod(proxy_nca)

    def __init__(
        self,
        num_classes: int,
        temperature: float = 1.0,
        exclude_positive: bool = True,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        check_positive("ProxyNCALoss", "temperature", temperature)
        self.temperature = temperature
        self.exclude_positive = exclude_positive
