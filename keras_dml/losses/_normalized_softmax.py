"""Classification by cosine: normalized softmax, CosFace, ArcFace."""

import math
from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import inner_product, l2_normalize, safe_sqrt
from keras_dml.losses.proxy_loss import ProxyLoss, class_mask, cross_entropy
from keras_dml.losses.reductions import reduce_terms, sum_terms
from keras_dml.utils.arguments import check_positive
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


def normalized_softmax(
    labels: Tensor,
    embeddings: Tensor,
    proxies: Tensor,
    *,
    temperature: float = 0.05,
    reduction: str = "mean",
) -> Tensor:
    """Normalized softmax loss, (B,); see `NormalizedSoftmaxLoss`."""
    cosines = inner_product(embeddings, l2_normalize(proxies))
    own = class_mask(labels, proxies.shape[0])
    return _reduce(cross_entropy(cosines / temperature, own), reduction)


def cos_face(
    labels: Tensor,
    embeddings: Tensor,
    proxies: Tensor,
    *,
    margin: float = 0.35,
    scale: float = 64.0,
    reduction: str = "mean",
) -> Tensor:
    """CosFace loss of every example, (B,); see `CosFaceLoss`."""
    cosines = inner_product(embeddings, l2_normalize(proxies))
    own = class_mask(labels, proxies.shape[0])
    logits = scale * ops.where(own, cosines - margin, cosines)
    return _reduce(cross_entropy(logits, own), reduction)


def arc_face(
    labels: Tensor,
    embeddings: Tensor,
    proxies: Tensor,
    *,
    margin: float = 0.5,
    scale: float = 64.0,
    reduction: str = "mean",
) -> Tensor:
    """ArcFace loss of every example, (B,); see `ArcFaceLoss`."""
    cosines = inner_product(embeddings, l2_normalize(proxies))
    squared_sine = 1.0 - ops.square(cosines)
    sines = safe_sqrt(ops.where(squared_sine < 0, 0.0, squared_sine))
    shifted = cosines * math.cos(margin) - sines * math.sin(margin)
    beyond = cosines < -math.cos(margin)  # angle + margin > π
    shifted = ops.where(beyond, cosines - margin * math.sin(margin), shifted)
    own = class_mask(labels, proxies.shape[0])
    logits = scale * ops.where(own, shifted, cosines)
    return _reduce(cross_entropy(logits, own), reduction)


def _reduce(terms: Tensor, reduction: str) -> Tensor:
    return reduce_terms(sum_terms(terms, ops.ones_like(terms)), reduction)


@LOSSES.register(
    "normalized_softmax",
    "cross entropy of cosine similarities with class vectors",
)
@register
class NormalizedSoftmaxLoss(ProxyLoss):
    """Cross entropy of cosine similarities with class vectors.

    Terms are examples.

    Args:
        num_classes: As for `ProxyLoss`.
        temperature: What the cosines are divided by.
        reduction: As for `MetricLoss`.
        **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Reference:
        Zhai and Wu, "Classification is a Strong Baseline for Deep Metric
        Learning", BMVC 2019, Eq. 3, https://arxiv.org/abs/1811.12649.
    """

    function = staticmethod(normalized_softmax)

    def __init__(
        self,
        num_classes: int,
        temperature: float = 0.05,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        check_positive("NormalizedSoftmaxLoss", "temperature", temperature)
        self.temperature = temperature


@LOSSES.register(
    "cos_face", "normalized softmax with a margin on the own class's cosine"
)
@register
class CosFaceLoss(ProxyLoss):
    """CosFace: normalized softmax with a margin on the own class's cosine.

    Terms are examples.

    Args:
        num_classes: As for `ProxyLoss`.
        margin: m, subtracted from the cosine with the own class.
        scale: s, what the cosines are multiplied by.
        reduction: As for `MetricLoss`.
        **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `scale` is not positive.

    Reference:
        Wang et al., "CosFace: Large Margin Cosine Loss for Deep Face
        Recognition", CVPR 2018, Eq. 4, https://arxiv.org/abs/1801.09414.
    """

    function = staticmethod(cos_face)

    def __init__(
        self,
        num_classes: int,
        margin: float = 0.35,
        scale: float = 64.0,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        check_positive("CosFaceLoss", "scale", scale)
        self.margin = margin
        self.scale = scale


@LOSSES.register(
    "arc_face", "normalized softmax with a margin on the own class's angle"
)
@register
class ArcFaceLoss(ProxyLoss):
    """ArcFace: normalized softmax with a margin on the own class's angle.

    The own class's cosine cos θ becomes cos(θ + m). Terms are examples.

    Args:
        num_classes: As for `ProxyLoss`.
        margin: m, in radians, between 0 and π.
        scale: s, what the cosines are multiplied by.
        reduction: As for `MetricLoss`.
        **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `scale` is not positive, or `margin` out of range.

    Deviations:
        - Where θ + m exceeds π, cos(θ + m) would rise again; there the
          logit is cos θ − m·sin m, as in the authors' code.

    Reference:
        Deng et al., "ArcFace: Additive Angular Margin Loss for Deep Face
        Recognition", CVPR 2019, Eq. 3, https://arxiv.org/abs/1801.07698.
    """

    function = staticmethod(arc_face)

    def __init__(
        self,
        num_classes: int,
        margin: float = 0.5,
        scale: float = 64.0,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        check_positive("ArcFaceLoss", "scale", scale)
        if not 0 <= margin < math.pi:
            raise ValueError(
                "`margin` of ArcFaceLoss is an angle in radians, between 0 "
                f"and π. Received: margin={margin}. For {margin} degrees "
                f"use margin={math.radians(margin):.4f}."
            )
        self.margin = margin
        self.scale = scale
