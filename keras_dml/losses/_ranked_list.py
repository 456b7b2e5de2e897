"""The ranked list loss."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs
from keras_dml.utils.types import Positive, Share, Tensor


@LOSSES.register("ranked_list")
class RankedListLoss(PairLoss):
    r"""Ranked list: positives within a sphere, negatives beyond a margin.

    For an anchor $a$, with its positives $P$ farther away than $\alpha - m$ and
    its negatives $N$ closer than $\alpha$,

    $$
    \ell_a = (1 - \lambda) \frac{\sum_{p \in P} w_p
    \left( d(a, p) - (\alpha - m) \right)}{\sum_{p \in P} w_p} + \lambda
    \frac{\sum_{n \in N} w_n \left( \alpha - d(a, n) \right)}
    {\sum_{n \in N} w_n} ,
    $$

    $$
    w_p = e^{T_+ (d(a, p) - (\alpha - m))} , \qquad
    w_n = e^{T_- (\alpha - d(a, n))} .
    $$

    Terms are all B anchors. `pair_weights` multiply the w of each pair in the
    numerators, but not in the denominators.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        alpha: α, the boundary of the negatives, in units of `distance`.
        margin: m, the gap between positives and negatives.
        balance: λ, the weight of the negatives.
        positive_temperature: T₊. With 0, all positives have the same weight.
        negative_temperature: T₋. Larger values give more weight to the hardest
            negatives.
        differentiate_weights: Whether the gradient passes through w, as in
            pytorch-metric-learning. In the paper, w only determines the share
            of each pair in the gradient.
        distance: As for `PairLoss`; Euclidean in the paper.
        mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `margin` is not positive, or `balance` is not in
            [0, 1].

    Deviations:
        - pytorch-metric-learning adds 1e−5 to w in the denominators for every
          example in the batch.
        - Its default for α is 1 + m/2; the default here, 1.2 with m = 0.4,
          agrees with this and with the paper.

    Also known as:
        - pytorch-metric-learning: `RankedListLoss(margin, Tn, imbalance, alpha,
          Tp)` is `RankedListLoss(alpha, margin, imbalance, Tp, Tn,
          differentiate_weights=True)`, but for the 1e−5 that it adds to each
          weight, and for pairs at distance 0, which it leaves out.

    Example:
        `RankedListLoss(alpha=1.2, margin=0.4)(labels, embeddings)`

    Reference:
        Wang et al., "Ranked List Loss for Deep Metric Learning", CVPR 2019, Eq.
        1 to 9, https://arxiv.org/abs/1903.03238.
    """

    def __init__(
        self,
        alpha: float = 1.2,
        margin: Positive = 0.4,
        balance: Share = 0.5,
        positive_temperature: float = 0.0,
        negative_temperature: float = 10.0,
        differentiate_weights: bool = False,
        distance: DistanceLike = "euclidean",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.margin = margin
        self.alpha = alpha
        self.balance = balance
        self.positive_temperature = positive_temperature
        self.negative_temperature = negative_temperature
        self.differentiate_weights = differentiate_weights

    def values(self, pairs: Pairs) -> Tensor:
        alpha = pairs.metric.orient(self.alpha)
        lack = alpha - pairs.distances
        parts = [
            self._mean(violation, counts, weights, temperature)
            for violation, counts, weights, temperature in zip(
                (self.margin - lack, lack),
                self.mined(pairs),
                pairs.weights,
                (self.positive_temperature, self.negative_temperature),
                strict=True,
            )
        ]
        return self.reduce(
            (1.0 - self.balance) * parts[0] + self.balance * parts[1]
        )

    def _mean(
        self,
        violation: Tensor,
        counts: Tensor,
        weights: Tensor | None,
        temperature: float,
    ) -> Tensor:
        """(B,): the weighted mean of the violations above 0."""
        used = ops.logical_and(ops.cast(counts, "bool"), violation > 0)
        exponent = temperature * violation
        if not self.differentiate_weights:
            exponent = ops.stop_gradient(exponent)
        # Shifted, so that no temperature overflows.
        exponent = ops.where(used, exponent, 0.0)
        top = ops.max(exponent, axis=1, keepdims=True)
        factor = ops.where(
            used, ops.exp(exponent - ops.stop_gradient(top)), 0.0
        )
        factor = factor * ops.cast(counts, "float32")
        total = ops.sum(factor, axis=1)
        if weights is not None:
            violation = violation * ops.where(used, weights, 0.0)
        share = ops.sum(ops.where(used, factor * violation, 0.0), axis=1)
        return share / ops.where(total > 0, total, 1.0)
