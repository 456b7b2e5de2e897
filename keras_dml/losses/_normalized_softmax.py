"""Classification by cosine: normalized softmax, CosFace, ArcFace."""

from typing import Any

import numpy as np
from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import inner_product, safe_sqrt
from keras_dml.losses.proxy_loss import ProxyLoss, class_mask, cross_entropy
from keras_dml.utils.arguments import check_angle
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.types import Positive, Tensor


class CosineClassifier(ProxyLoss):
    """Base: cross entropy of logits made of cosines with class vectors."""

    gains_from_means = True

    def values(
        self, labels: Tensor, embeddings: Tensor, proxies: Tensor
    ) -> Tensor:
        cosines = self.cosines(embeddings, l2_normalize(proxies))
        targets = class_mask(labels, cosines.shape[1])
        logits = self.logits(cosines, targets)
        return self.reduce(cross_entropy(logits, targets))

    def cosines(self, embeddings: Tensor, proxies: Tensor) -> Tensor:
        """(B, C) cosines with each class; `proxies` are unit."""
        return inner_product(embeddings, proxies)

    def logits(self, cosines: Tensor, targets: Tensor) -> Tensor:
        """(B, C) logits; `targets` marks the own class of each example."""
        raise NotImplementedError


@LOSSES.register("normalized_softmax")
class NormalizedSoftmaxLoss(CosineClassifier):
    r"""Normalized softmax: cross entropy of cosines with class vectors.

    For an example of class $y$ that forms the angles $\theta_c$ with the
    proxies of the classes,

    $$
    \ell = -\log \frac{e^{\cos \theta_y / \tau}}
    {\sum_c e^{\cos \theta_c / \tau}} .
    $$

    Terms are examples.

    When to use it:
        A classifier as a baseline, without a margin to tune.

    Labels:
        (B,) class ids, integers in [0, num_classes).

    Args:
        temperature: τ, by which the cosines are divided.
        num_classes, reduction, **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Also known as:
        - pytorch-metric-learning: `NormalizedSoftmaxLoss(num_classes, D,
          temperature)`.
        - Elsewhere: NormFace, cosine softmax.

    Example:
        `NormalizedSoftmaxLoss(num_classes=100, temperature=0.05)`

    Reference:
        Zhai and Wu, "Classification is a Strong Baseline for Deep Metric
        Learning", BMVC 2019, Eq. 3, https://arxiv.org/abs/1811.12649.
    """

    def __init__(
        self,
        num_classes: int,
        temperature: Positive = 0.05,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        self.temperature = temperature

    def logits(self, cosines: Tensor, targets: Tensor) -> Tensor:
        return cosines / self.temperature


@LOSSES.register("cos_face", examples={"scale": 9.0})
class CosFaceLoss(CosineClassifier):
    r"""CosFace: normalized softmax with a margin on the own class's cosine.

    For an example of class $y$ that forms the angles $\theta_c$ with the
    proxies of the classes,

    $$
    \ell = -\log \frac{e^{s (\cos \theta_y - m)}}
    {e^{s (\cos \theta_y - m)} + \sum_{c \ne y} e^{s \cos \theta_c}} .
    $$

    Terms are examples.

    When to use it:
        As `ArcFaceLoss`, with a margin of the cosine in place of the
        angle.

    Labels:
        (B,) class ids, integers in [0, num_classes).

    Args:
        margin: m, subtracted from the cosine with the example's own class.
        scale: s, the factor of the cosines.
        num_classes, reduction, **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `scale` is not positive.

    Also known as:
        - pytorch-metric-learning: `CosFaceLoss(num_classes, D)`, with the same
          defaults.
        - Elsewhere: AM-Softmax, large margin cosine loss.

    Example:
        `CosFaceLoss(num_classes=100, margin=0.25)`

    Reference:
        Wang et al., "CosFace: Large Margin Cosine Loss for Deep Face
        Recognition", CVPR 2018, Eq. 4, https://arxiv.org/abs/1801.09414.
    """

    def __init__(
        self,
        num_classes: int,
        margin: float = 0.35,
        scale: Positive = 64.0,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        self.scale = scale
        self.margin = margin

    def logits(self, cosines: Tensor, targets: Tensor) -> Tensor:
        return self.scale * ops.where(targets, cosines - self.margin, cosines)


@LOSSES.register("arc_face", examples={"scale": 9.0})
class ArcFaceLoss(CosineClassifier):
    r"""ArcFace: normalized softmax with a margin on the own class's angle.

    For an example of class $y$ that forms the angles $\theta_c$ with the
    proxies of the classes,

    $$
    \ell = -\log \frac{e^{s \cos(\theta_y + m)}}
    {e^{s \cos(\theta_y + m)} + \sum_{c \ne y} e^{s \cos \theta_c}} .
    $$

    Terms are examples.

    When to use it:
        Many classes, such as faces, vehicles or products. Positives
        need not be in one batch. From 100,000 classes on, with
        `class_share`.

    Labels:
        (B,) class ids, integers in [0, num_classes).

    Args:
        margin: m, in radians, between 0 and π.
        scale: s, the factor of the cosines.
        num_classes, reduction, **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `scale` is not positive, or `margin` is out of range.

    Deviations:
        - If θ + m exceeds π, where cos(θ + m) would rise again, the logit is
          cos θ − m·sin m, as in the authors' code.

    Also known as:
        - pytorch-metric-learning: `ArcFaceLoss(num_classes, D, margin)`, with
          the margin in degrees, is `ArcFaceLoss(num_classes,
          margin=np.radians(margin))`.
        - Elsewhere: additive angular margin loss.

    Example:
        >>> x = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> # Example 0: −log(e^cos(0 + 0.5) / (e^cos(0 + 0.5) + e^0)) = 0.3477
        >>> loss = ArcFaceLoss(num_classes=2, scale=1.0, initializer="identity")
        >>> loss.build(keras.layers.Layer(), embedding_dim=2)
        >>> round(float(loss([0, 0, 1], x)), 4)
        0.59

    Reference:
        Deng et al., "ArcFace: Additive Angular Margin Loss for Deep Face
        Recognition", CVPR 2019, Eq. 3, https://arxiv.org/abs/1801.07698.
    """

    def __init__(
        self,
        num_classes: int,
        margin: float = 0.5,
        scale: Positive = 64.0,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        self.scale = scale
        self.margin = check_angle("ArcFaceLoss", "margin", margin)

    def logits(self, cosines: Tensor, targets: Tensor) -> Tensor:
        shifted = add_angle(cosines, self.margin)
        return self.scale * ops.where(targets, shifted, cosines)


def add_angle(cosines: Tensor, margin: Any) -> Tensor:
    """cos(θ + m) of cos θ, or beyond θ + m = π cos θ − m·sin m.

    The margin m is in radians, a number or (C,).
    """
    trigonometry: Any = ops if ops.is_tensor(margin) else np
    cos, sin = trigonometry.cos(margin), trigonometry.sin(margin)
    sines = safe_sqrt(1.0 - ops.square(cosines))
    shifted = cosines * cos - sines * sin
    beyond = cosines < -cos
    return ops.where(beyond, cosines - margin * sin, shifted)
