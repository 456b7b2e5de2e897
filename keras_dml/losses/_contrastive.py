"""Losses on single pairs: contrastive and binomial deviance."""

from typing import Any, Literal

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs, hinge
from keras_dml.utils.types import Tensor


@LOSSES.register(
    "contrastive",
    examples={
        "positive_margin": 0.1,
        "negative_margin": 0.9,
        "power": 2,
        "reduction": "mean",
        "negative_weight": 2.0,
        "joint": True,
    },
)
class ContrastiveLoss(PairLoss):
    r"""Contrastive loss: positives close, negatives beyond a margin.

    For a positive and a negative pair at distance $d$,

    $$
    \ell_+ = \left[ d - m_+ \right]_+^q , \qquad
    \ell_- = \left[ m_- - d \right]_+^q .
    $$

    Common variants:

    - squared distance: the defaults, averaged over pairs with a nonzero loss.
    - ABE, Eq. 10: `reduction="sum_over_pairs"`, the sum over all ordered
      pairs, divided by B.
    - plain (attentive grouping, Eq. 1): `distance="euclidean"`,
      `reduction="mean"`.
    - Hadsell et al., multiplied by two: `distance="euclidean"`, `power=2`.
    - two margins: `positive_margin` > 0.

    Terms are pairs, which are multiplied by `pair_weights`; "mean" and
    "mean_nonzero" average positive and negative pairs separately, and add the
    two, unless `joint` is set.

    When to use it:
        A first loss to try on class-balanced batches, and where only
        pairs are known. If one threshold must suit all classes, add the
        threshold-consistent margin to another loss: `NTXentLoss() +
        ContrastiveLoss(0.9, 0.5, distance="cosine")` (Zhang et al.,
        ICLR 2024, https://arxiv.org/abs/2307.04047).

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        positive_margin: m₊, in units of `distance`: positives closer than this
            have no loss.
        negative_margin: m₋, in units of `distance`: negatives farther away than
            this have no loss.
        power: 1, or 2 to square the hinges.
        distance: A name in `keras_dml.losses.distances.DISTANCES`. With a
            similarity, the margins are similarities, and both inequalities are
            reversed.
        mining, reduction, **kwargs: As for `PairLoss`.
        negative_weight: What the losses of negative pairs are multiplied by.
        joint: Whether pairs of both kinds have one mean, as in HDC's released
            code, in place of one each.

    Raises:
        ValueError: If `power` is neither 1 nor 2.

    Also known as:
        - pytorch-metric-learning: `ContrastiveLoss()` is
          `ContrastiveLoss(distance="euclidean")`;
          `SignalToNoiseRatioContrastiveLoss` has `distance="snr"`;
          `ThresholdConsistentMarginLoss()` is `ContrastiveLoss(0.9, 0.5,
          distance="cosine")`.
        - TensorFlow Addons: `ContrastiveLoss`, of the distances of pairs, is
          `ContrastiveLoss(power=2, distance="euclidean",
          reduction="sum_over_pairs", normalize=False)` of the pairs.
        - sentence-transformers: `ContrastiveLoss`, on pairs with labels 0 or 1,
          is `0.5 * ContrastiveLoss(1.0, 0.5, power=2, distance="cosine",
          reduction="sum_over_pairs")`. `MegaBatchMarginLoss` is
          `ContrastiveLoss(0.8, 0.3, distance="cosine",
          mining=Selection("all", "hard"), reduction="sum_over_pairs")`, with
          the positives as references.
        - Elsewhere: threshold-consistent margin (TCM).

    Example:
        >>> x = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> # Positive pairs cost 0.8; of the negative ones, one costs 1 − 0.4.
        >>> round(float(ContrastiveLoss()([0, 0, 1], x)), 4)
        1.4

    Reference:
        Hadsell et al., "Dimensionality Reduction by Learning an Invariant
        Mapping", CVPR 2006; Kim et al., "Attention-based Ensemble for Deep
        Metric Learning", ECCV 2018, Eq. 10.
    """

    def __init__(
        self,
        positive_margin: float = 0.0,
        negative_margin: float = 1.0,
        power: Literal[1, 2] = 1,
        distance: DistanceLike = "squared",
        mining: Any = "all",
        reduction: str = "mean_nonzero",
        negative_weight: float = 1.0,
        joint: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.negative_weight = negative_weight
        self.joint = joint
        self.power = power
        self.positive_margin = positive_margin
        self.negative_margin = negative_margin

    def values(self, pairs: Pairs) -> Tensor:
        orient = pairs.metric.orient
        near, far = orient(self.positive_margin), orient(self.negative_margin)
        rounding = pairs.rounding
        excess = hinge(pairs.distances - near, rounding)
        lack = hinge(far - pairs.distances, rounding)
        if self.power == 2:  # 1 as a power, above all its gradient, is slow
            excess, lack = excess**2, lack**2
        lack = self.negative_weight * lack
        return self.reduce_pairs(pairs, excess, lack, self.joint)


@LOSSES.register(
    "binomial_deviance",
    examples={
        "threshold": 0.4,
        "positive_scale": 2.0,
        "negative_scale": 20.0,
    },
)
class BinomialDevianceLoss(PairLoss):
    r"""Binomial deviance: a soft threshold between positives and negatives.

    For a positive and a negative pair with similarity $s$,

    $$
    \ell_+ = \log\left( 1 + e^{-\alpha \beta_+ (s - m)} \right) , \qquad
    \ell_- = \log\left( 1 + e^{\alpha \beta_- (s - m)} \right) .
    $$

    Terms are pairs, which are multiplied by `pair_weights`; "mean" averages
    positive and negative pairs separately, and adds the two.

    When to use it:
        Single pairs, if a soft threshold is easier to choose than
        margins.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        alpha: α.
        threshold: m, the similarity that separates close from distant pairs.
        positive_scale: β₊, the paper's β₁.
        negative_scale: β₋, the paper's β₀.
        distance: A name in `keras_dml.losses.distances.DISTANCES`; the
            papers use cosine similarity.
        mining, reduction, **kwargs: As for `PairLoss`.

    Deviations:
        - Table 1 of the attentive grouping paper has the 25 on the positive
          side (`positive_scale=25, negative_scale=1`); its released code has it
          on the negative side, as here, which compensates for the larger number
          of negatives.

    Also known as:
        None of the compared libraries has an equivalent.

    Example:
        `BinomialDevianceLoss(negative_scale=40.0)(labels, embeddings)`

    Reference:
        Yi et al., "Deep Metric Learning for Person Re-Identification", ICPR
        2014; Xu et al., "Towards Improved and Interpretable Deep Metric
        Learning via Attentive Grouping", 2020, Eq. 2.
    """

    def __init__(
        self,
        alpha: float = 2.0,
        threshold: float = 0.5,
        positive_scale: float = 1.0,
        negative_scale: float = 25.0,
        distance: DistanceLike = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.alpha = alpha
        self.threshold = threshold
        self.positive_scale = positive_scale
        self.negative_scale = negative_scale

    def values(self, pairs: Pairs) -> Tensor:
        threshold = pairs.metric.orient(self.threshold)
        excess = self.alpha * (pairs.distances - threshold)
        pull = ops.softplus(self.positive_scale * excess)
        push = ops.softplus(-self.negative_scale * excess)
        return self.reduce_pairs(pairs, pull, push)
