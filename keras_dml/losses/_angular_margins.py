"""Variants of ArcFace: sub-centers, dynamic margins, SphereFace, P2SGrad."""

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from keras import ops

from keras_dml.losses._normalized_softmax import (
    CosineClassifier,
    add_angle,
)
from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import inner_product, safe_sqrt
from keras_dml.losses.proxy_loss import ProxyLoss, class_mask, cross_entropy
from keras_dml.utils.arguments import check_angle
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.types import Count, Positive, Tensor


class _SubCenters(CosineClassifier):
    """Base: a class's cosine is the largest of those with its centers."""

    def __init__(
        self,
        num_classes: int,
        num_centers: Count,
        scale: Positive,
        reduction: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        self.num_centers = num_centers
        self.scale = scale

    @property
    def num_proxies(self) -> int:
        return self.num_classes * self.num_centers

    def cosines(self, embeddings: Tensor, proxies: Tensor) -> Tensor:
        count, classes = self.num_centers, proxies.shape[0] // self.num_centers
        centers = ops.reshape(proxies, (classes, count, -1))
        # Reducing the middle axis is faster than the short last one.
        columns = ops.reshape(ops.transpose(centers, (1, 0, 2)), proxies.shape)
        cosines = inner_product(embeddings, columns)
        return ops.max(ops.reshape(cosines, (-1, count, classes)), axis=1)


@LOSSES.register(
    "sub_center_arc_face", examples={"num_centers": 2, "scale": 9.0}
)
class SubCenterArcFaceLoss(_SubCenters):
    r"""Sub-center ArcFace: ArcFace with several centers per class.

    For an example of class $y$ that forms the angles $\theta_{ck}$ with the $K$
    centers of each class $c$,

    $$
    \ell = -\log \frac{e^{s \cos(\theta_y + m)}}
    {e^{s \cos(\theta_y + m)} + \sum_{c \ne y} e^{s \cos \theta_c}} ,
    \qquad \cos \theta_c = \max_k \cos \theta_{ck} .
    $$

    Images with wrong labels gather around centers of their own, and no longer
    affect the rest of the class. Terms are examples.

    When to use it:
        Many classes with wrong labels or varied appearance.

    Labels:
        (B,) class ids, integers in [0, num_classes).

    Args:
        num_classes: As for `ProxyLoss`.
        num_centers: Number of centers per class, K.
        margin: m, in radians, between 0 and π.
        scale: s, the factor of the cosines.
        reduction, **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If an argument is out of range.

    Deviations:
        - In a second stage of training, the paper drops all centers but the
          dominant ones, and the images far from these. This is not part of the
          loss. The centers of class c are the rows c·K to (c + 1)·K of the
          proxies.

    Also known as:
        - pytorch-metric-learning: `SubCenterArcFaceLoss(num_classes=C,
          embedding_size=D)` is `SubCenterArcFaceLoss(C,
          margin=np.radians(28.6))`; its `sub_centers` is `num_centers`.

    Example:
        `SubCenterArcFaceLoss(num_classes=100, num_centers=3)`

    Reference:
        Deng et al., "Sub-center ArcFace: Boosting Face Recognition by
        Large-scale Noisy Web Faces", ECCV 2020, Sec. 3.
    """

    def __init__(
        self,
        num_classes: int,
        num_centers: int = 3,
        margin: float = 0.5,
        scale: float = 64.0,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, num_centers, scale, reduction, **kwargs)
        self.margin = check_angle("SubCenterArcFaceLoss", "margin", margin)

    def logits(self, cosines: Tensor, targets: Tensor) -> Tensor:
        shifted = add_angle(cosines, self.margin)
        return self.scale * ops.where(targets, shifted, cosines)


@LOSSES.register(
    "dynamic_arc_face",
    examples={
        "class_counts": [5, 1, 3, 2, 9, 4],
        "a": 0.4,
        "b": 0.1,
        "power": 0.3,
        "num_centers": 2,
        "scale": 9.0,
    },
)
class DynamicArcFaceLoss(_SubCenters):
    r"""Dynamic-margin ArcFace: wider margins for rarer classes.

    For an example of class $y$ with $n_y$ training images,

    $$
    \ell = -\log \frac{e^{s \cos(\theta_y + m_y)}}
    {e^{s \cos(\theta_y + m_y)} + \sum_{c \ne y} e^{s \cos \theta_c}} ,
    \qquad m_y = a \, n_y^{-\lambda} + b ,
    $$

    where $\cos \theta_c$ is the largest cosine with any center of class $c$, as
    in `SubCenterArcFaceLoss`. Rare classes are hard to learn, so they are kept
    farther away from the others. Terms are examples.

    When to use it:
        Many classes of very different sizes.

    Labels:
        (B,) class ids, integers in [0, num_classes).

    Args:
        num_classes: As for `ProxyLoss`.
        class_counts: n of every class, (C,), for instance
            `np.bincount(labels)`; in a recipe, `class_counts: auto`.
        a: a, in radians.
        b: b, in radians.
        power: λ.
        num_centers: Number of centers per class; with 1 as in ArcFace.
        scale: s, the factor of the cosines.
        reduction, **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `class_counts` does not hold one positive count per
            class, or a margin is not in [0, π).

    Deviations:
        - a, b and λ are the defaults of pytorch-metric-learning 3.

    Also known as:
        - pytorch-metric-learning: `DynamicArcFaceLoss`, from its version 3 on;
          not compared.

    Example:
        `DynamicArcFaceLoss(num_classes=4, class_counts=[9, 3, 5, 1])`

    Reference:
        Ha et al., "Google Landmark Recognition 2020 Competition Third Place
        Solution", 2020, Sec. 2, https://arxiv.org/abs/2010.05350.
    """

    def __init__(
        self,
        num_classes: int,
        class_counts: Sequence[int],
        a: float = 0.5,
        b: float = 0.05,
        power: float = 0.25,
        num_centers: int = 3,
        scale: float = 64.0,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, num_centers, scale, reduction, **kwargs)
        self.class_counts = [int(count) for count in class_counts]
        if len(self.class_counts) != num_classes or min(self.class_counts) < 1:
            raise ValueError(
                "`class_counts` of DynamicArcFaceLoss must hold the number of "
                "training images, at least 1, of each of the "
                f"num_classes={num_classes} classes. Received: "
                f"{len(self.class_counts)} counts, the smallest of which is "
                f"{min(self.class_counts, default=0)}. Use np.bincount(labels)."
            )
        self.a, self.b, self.power = a, b, power
        counts = np.array(self.class_counts, "float64")
        self.margins = (a * counts**-power + b).astype("float32")
        for margin in (self.margins.min(), self.margins.max()):
            check_angle("DynamicArcFaceLoss", "a·n^(−λ) + b", float(margin))

    def among(self, classes: Tensor) -> "DynamicArcFaceLoss":
        loss = copy(self)
        loss.margins = ops.take(self.margins, classes)
        return loss

    def logits(self, cosines: Tensor, targets: Tensor) -> Tensor:
        shifted = add_angle(cosines, self.margins)
        return self.scale * ops.where(targets, shifted, cosines)


@LOSSES.register("sphere_face", examples={"margin": 3, "scale": 9.0})
class SphereFaceLoss(ProxyLoss):
    r"""SphereFace: normalized softmax with a multiplied own-class angle.

    For an example $x$ of class $y$ that forms the angles $\theta_c$ with the
    proxies of the classes,

    $$
    \ell = -\log \frac{e^{s \|x\| \psi(\theta_y)}}
    {e^{s \|x\| \psi(\theta_y)} + \sum_{c \ne y} e^{s \|x\| \cos \theta_c}} ,
    \qquad \psi(\theta) = (-1)^k \cos(m \theta) - 2 k
    $$

    for θ in [kπ/m, (k + 1)π/m]: ψ falls from 1 to 1 − 2m. Terms are examples.

    When to use it:
        Comparison with older work; otherwise `ArcFaceLoss`.

    Labels:
        (B,) class ids, integers in [0, num_classes).

    Args:
        num_classes: As for `ProxyLoss`.
        margin: m, an integer.
        scale: s. The paper uses 1, with `normalize=False`.
        reduction, **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `margin` is not a positive integer, or `scale` is not
            positive.

    Deviations:
        - The paper uses the length of the embedding as the scale, as does
          pytorch-metric-learning: `normalize=False, scale=1`. The default is
          for unit-length embeddings, as in later work on SphereFace.
        - The authors' code blends ψ(θ) with cos θ, to a lesser degree as
          training progresses. Here, ψ is used from the start.

    Also known as:
        - pytorch-metric-learning: `SphereFaceLoss(num_classes, D, scale=s)` is
          `SphereFaceLoss(num_classes, scale=s, normalize=False)`; its default
          is 1.
        - Elsewhere: A-Softmax.

    Example:
        `SphereFaceLoss(num_classes=100, margin=4)`

    Reference:
        Liu et al., "SphereFace: Deep Hypersphere Embedding for Face
        Recognition", CVPR 2017, Eq. 7, https://arxiv.org/abs/1704.08063.
    """

    def __init__(
        self,
        num_classes: int,
        margin: Count = 4,
        scale: Positive = 30.0,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        self.margin = margin
        self.scale = scale

    def values(
        self, labels: Tensor, embeddings: Tensor, proxies: Tensor
    ) -> Tensor:
        squared = ops.sum(ops.square(embeddings), axis=1, keepdims=True)
        cosines = inner_product(l2_normalize(embeddings), l2_normalize(proxies))
        targets = class_mask(labels, proxies.shape[0])
        # cos(mθ) is the Chebyshev polynomial T_m of cos θ.
        before, multiplied = ops.ones_like(cosines), cosines
        for _ in range(self.margin - 1):
            before, multiplied = multiplied, 2.0 * cosines * multiplied - before
        # ψ(θ): mirrored where it rises, so that it falls.
        angles = ops.arccos(ops.clip(ops.stop_gradient(cosines), -1.0, 1.0))
        k = ops.floor(angles * (self.margin / math.pi))
        multiplied = (1.0 - 2.0 * (k % 2.0)) * multiplied - 2.0 * k
        logits = ops.where(targets, multiplied, cosines)
        logits = self.scale * safe_sqrt(squared) * logits
        return self.reduce(cross_entropy(logits, targets))


@LOSSES.register("p2s_grad")
class P2SGradLoss(CosineClassifier):
    r"""P2SGrad: squared errors of cosines with class vectors.

    For an example of class $y$ that forms the angles $\theta_c$ with the
    proxies of the classes,

    $$
    \ell = \frac{1}{2} \left( \cos \theta_y - 1 \right)^2 +
    \frac{1}{2} \sum_{c \ne y} \cos^2 \theta_c .
    $$

    Its gradient is that of the paper: the gradient of a softmax with cosines in
    place of probabilities. There is no scale or margin to choose. Terms are
    examples.

    When to use it:
        A classifier without a scale or margin to tune.

    Labels:
        (B,) class ids, integers in [0, num_classes).

    Args:
        num_classes, reduction, **kwargs: As for `ProxyLoss`.

    Deviations:
        - The paper defines only the gradient; this is the loss with that
          gradient. pytorch-metric-learning averages the squares over the
          classes, which is 2/C times this loss.

    Also known as:
        - pytorch-metric-learning: `P2SGradLoss(D, num_classes)` is
          2/num_classes times `P2SGradLoss(num_classes)`.

    Example:
        `P2SGradLoss(num_classes=100)`

    Reference:
        Zhang et al., "P2SGrad: Refined Gradients for Optimizing Deep Face
        Models", CVPR 2019, Eq. 11, https://arxiv.org/abs/1905.02479.
    """

    def __init__(
        self, num_classes: int, reduction: str = "mean", **kwargs: Any
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)

    def values(
        self, labels: Tensor, embeddings: Tensor, proxies: Tensor
    ) -> Tensor:
        cosines = inner_product(l2_normalize(embeddings), l2_normalize(proxies))
        targets = ops.cast(class_mask(labels, proxies.shape[0]), "float32")
        errors = ops.square(cosines - targets)
        return self.reduce(0.5 * ops.sum(errors, axis=1))
