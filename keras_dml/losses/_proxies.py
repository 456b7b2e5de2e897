"""Losses on proxies: Proxy-NCA, Proxy-Anchor, SoftTriple."""

from typing import Any, Literal

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import inner_product, safe_sqrt
from keras_dml.losses.proxy_loss import ProxyLoss, class_mask, cross_entropy
from keras_dml.losses.reductions import masked_logsumexp
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.types import Count, Positive, Tensor


@LOSSES.register("proxy_nca", examples={"exclude_positive": False})
class ProxyNCALoss(ProxyLoss):
    r"""Proxy-NCA: neighborhood component analysis against class proxies.

    For an example $x$ of class $y$, with proxies $p$ and the squared distance
    $d$ of unit vectors,

    $$
    \ell = -\log \frac{e^{-d(x, p_y) / T}}{\sum_{z} e^{-d(x, p_z) / T}} .
    $$

    In the paper, $z$ runs over the *other* classes, and the loss can be
    negative. Proxy-NCA++ sums over all classes, with a low temperature:
    `exclude_positive=False, temperature=1/9`.

    Terms are examples.

    When to use it:
        As `ProxyAnchorLoss`, without a margin to tune.

    Labels:
        (B,) class ids, integers in [0, num_classes).

    Args:
        temperature: T.
        exclude_positive: Whether to leave the proxy of the example's own class
            out of the denominator.
        num_classes, reduction, **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Also known as:
        - pytorch-metric-learning: `ProxyNCALoss(num_classes, D, softmax_scale)`
          is `ProxyNCALoss(num_classes, 1 / softmax_scale,
          exclude_positive=False)`.
        - Elsewhere: ProxyNCA++.

    Example:
        >>> x = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> # d to the own and the other proxy: 0 − 2, 0.8 − 0.4, 0 − 2.
        >>> loss = ProxyNCALoss(num_classes=2, initializer="identity")
        >>> loss.build(keras.layers.Layer(), embedding_dim=2)
        >>> round(float(loss([0, 0, 1], x)), 4)
        -1.2

    Reference:
        Movshovitz-Attias et al., "No Fuss Distance Metric Learning using
        Proxies", ICCV 2017, Eq. 4, https://arxiv.org/abs/1703.07464; Teh et
        al., "ProxyNCA++", ECCV 2020, Sec. 3.
    """

    def __init__(
        self,
        num_classes: int,
        temperature: Positive = 1.0,
        exclude_positive: bool = True,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        self.temperature = temperature
        self.exclude_positive = exclude_positive

    def values(
        self, labels: Tensor, embeddings: Tensor, proxies: Tensor
    ) -> Tensor:
        proxies = l2_normalize(proxies)
        # −‖x − p‖² but for ‖x‖², which every class has and softmax cancels.
        logits = inner_product((2.0 / self.temperature) * embeddings, proxies)
        squared = ops.sum(ops.square(proxies), axis=1)
        logits -= (1.0 / self.temperature) * squared
        targets = class_mask(labels, proxies.shape[0])
        if not self.exclude_positive:
            return self.reduce(cross_entropy(logits, targets))
        own_logit = ops.sum(ops.where(targets, logits, 0.0), axis=1)
        log_total = masked_logsumexp(logits, ops.logical_not(targets))
        return self.reduce(log_total[:, 0] - own_logit)


@LOSSES.register("proxy_anchor", examples={"reduction": "mean"})
class ProxyAnchorLoss(ProxyLoss):
    r"""Proxy-Anchor: every proxy is an anchor for the whole batch.

    With all proxies $P$, those $P_+$ whose class is in the batch, the examples
    $X_p$ of p's class and $\bar{X}_p$ of other classes, and the cosine
    similarity $s$,

    $$
    \mathcal{L} = \frac{1}{|P_+|} \sum_{p \in P_+} \log\left( 1 +
    \sum_{x \in X_p} e^{-\alpha (s(x, p) - \delta)} \right) +
    \frac{1}{|P|} \sum_{p \in P} \log\left( 1 +
    \sum_{x \in \bar{X}_p} e^{\alpha (s(x, p) + \delta)} \right) .
    $$

    The loss is defined for proxies rather than examples: the two terms of each
    proxy are divided equally among the examples in them, and the mean of these
    values over the batch is the loss.

    When to use it:
        Many classes with few images each, and small batches: positives
        need not be in one batch.

    Labels:
        (B,) class ids, integers in [0, num_classes).

    Args:
        num_classes: As for `ProxyLoss`.
        alpha: Scale α.
        margin: δ, a cosine similarity.
        reduction: Must be "mean".
        **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If `alpha` is not positive, or `reduction` is not "mean".

    Also known as:
        - pytorch-metric-learning: `ProxyAnchorLoss(num_classes, D)`.

    Example:
        `ProxyAnchorLoss(num_classes=100, margin=0.1)`

    Reference:
        Kim et al., "Proxy Anchor Loss for Deep Metric Learning", CVPR 2020, Eq.
        4, https://arxiv.org/abs/2003.13911.
    """

    def __init__(
        self,
        num_classes: int,
        alpha: Positive = 32.0,
        margin: float = 0.1,
        reduction: Literal["mean"] = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        self.alpha = alpha
        self.margin = margin

    def values(
        self, labels: Tensor, embeddings: Tensor, proxies: Tensor
    ) -> Tensor:
        similarity = inner_product(embeddings, l2_normalize(proxies))  # (B, C)
        targets = class_mask(labels, proxies.shape[0])
        present = ops.cast(ops.any(targets, axis=0), "float32")
        pull = _shares(self.alpha * (self.margin - similarity), targets)
        push = self.alpha * (self.margin + similarity)
        push = _shares(push, ops.logical_not(targets))
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
    "soft_triple",
    examples={"num_centers": 3, "scale": 9.0, "gamma": 0.3, "tau": 0.1},
)
class SoftTripleLoss(ProxyLoss):
    r"""SoftTriple: softmax over classes with several centers each.

    For an example $x$ of class $y$, where class $c$ has the unit centers
    $w_{c1}, \dots, w_{cK}$,

    $$
    \ell = -\log \frac{e^{\lambda (S_y - \delta)}}
    {e^{\lambda (S_y - \delta)} + \sum_{c \ne y} e^{\lambda S_c}} , \qquad
    S_c = \sum_k \frac{e^{x^\top w_{ck} / \gamma}}
    {\sum_l e^{x^\top w_{cl} / \gamma}} \, x^\top w_{ck} .
    $$

    An additional term merges superfluous centers:

    $$
    \frac{\tau}{C K (K - 1)} \sum_c \sum_{t < s} \| w_{ct} - w_{cs} \| .
    $$

    Terms are examples.

    When to use it:
        Classes whose images vary in appearance: an example needs to be
        close to one center only.

    Labels:
        (B,) class ids, integers in [0, num_classes).

    Args:
        num_classes: As for `ProxyLoss`.
        num_centers: Number of centers per class, K.
        scale: λ.
        gamma: Temperature γ of the softmax over centers.
        margin: δ, a cosine similarity.
        tau: Weight τ of the distance between centers.
        reduction: As for `MetricLoss`; it does not apply to the τ term.
        **kwargs: As for `ProxyLoss`.

    Raises:
        ValueError: If an argument is out of range.

    Also known as:
        - pytorch-metric-learning: `SoftTripleLoss(num_classes, D)` is
          `SoftTripleLoss(num_classes, tau=0.0)`; its `la` is `scale`,
          `centers_per_class` is `num_centers`.

    Example:
        `SoftTripleLoss(num_classes=100, num_centers=4)`

    Reference:
        Qian et al., "SoftTriple Loss: Deep Metric Learning Without Triplet
        Sampling", ICCV 2019, Eq. 9 and 11 (numbers not verified),
        https://arxiv.org/abs/1909.05235.
    """

    def __init__(
        self,
        num_classes: int,
        num_centers: Count = 10,
        scale: Positive = 20.0,
        gamma: Positive = 0.1,
        margin: float = 0.01,
        tau: float = 0.2,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, reduction=reduction, **kwargs)
        self.scale = scale
        self.gamma = gamma
        self.num_centers = num_centers
        self.margin = margin
        self.tau = tau

    @property
    def num_proxies(self) -> int:
        return self.num_classes * self.num_centers

    def values(
        self, labels: Tensor, embeddings: Tensor, proxies: Tensor
    ) -> Tensor:
        classes = proxies.shape[0] // self.num_centers
        proxies = l2_normalize(proxies)
        centers = ops.reshape(proxies, (classes, self.num_centers, -1))
        # Reducing the middle axis is faster than the short last one.
        columns = ops.reshape(ops.transpose(centers, (1, 0, 2)), proxies.shape)
        similarity = ops.reshape(
            inner_product(embeddings, columns), (-1, self.num_centers, classes)
        )  # (B, K, C)
        weights = ops.softmax(similarity / self.gamma, axis=1)
        to_class = ops.sum(weights * similarity, axis=1)  # (B, C)
        targets = class_mask(labels, classes)
        margins = self.margin * ops.cast(targets, "float32")
        logits = self.scale * (to_class - margins)
        values = self.reduce(cross_entropy(logits, targets))
        if self.tau == 0 or self.num_centers == 1:
            return values
        # The mean over classes of Σ_{t<s} ‖w_t − w_s‖ / (K(K − 1)) (Eq. 10).
        count = self.num_centers
        among = ops.einsum("ckd,cld->ckl", centers, centers)
        distance = safe_sqrt(2.0 - 2.0 * among)
        upper = ops.triu(ops.ones((count, count), dtype="float32"), k=1)
        pairs = count * (count - 1) * classes
        spread = ops.sum(distance * upper[None]) / pairs
        return values + self.tau * spread
